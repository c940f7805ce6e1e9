// Runs a model: the batch of a step through its code or a record of an earlier step, and its tower. Owns what
// that needs, the key/value cache, the scratch memory and the records. Knows no request.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "backend/numerics_check.h"
#include "engine/batch_builder.h"
#include "engine/step_plans.h"
#include "models/model.h"
#include "tensor/arena.h"

namespace triptych {

struct ModelRunnerOptions {
  int n_blocks = 1;  // of the key/value cache
  KvDType kv_dtype = KvDType::kF32;
  int max_sequences = 8;        // of a step, usually
  bool replay_steps = true;     // record a decode step of each shape once and replay it
  bool check_numerics = false;  // look for infinities and NaN, and say in which part they arose
};

class ModelRunner {
 public:
  /// Borrows both. Throws Error for a cache that the backend cannot make.
  ModelRunner(const Model& model, Backend& backend, const ModelRunnerOptions& options);

  KvCache& kv_cache() noexcept { return *kv_cache_; }
  const KvCache& kv_cache() const noexcept { return *kv_cache_; }

  /// Tower and projector -> [sum of n_tokens, W], an operand of the backend. `observer` may be
  /// null. Valid until the next call. Throws what the model throws.
  TensorView encode_media(std::span<const MediaItem> items, ExecObserver* observer);
  /// One step -> logits [sum of logit rows, vocab_size] in host memory, sequences in order. Valid until the
  /// next call.
  /// Throws what the model throws; then, of the cache, only what the step was to write is lost: the same
  /// rows, or others in their place, may be run again.
  TensorView forward(std::span<const SequenceRows> sequences, ExecObserver* observer);
  /// The same without some layers (ascending), for drafts: logits of every row. Keys and values of the other
  /// layers are written where the rows say, for the rows to come of the same draft.
  TensorView forward_draft(std::span<const SequenceRows> sequences,
                           std::span<const std::int32_t> skipped_layers);

  /// Steps so far that were recorded, and that a record served without the model's code.
  std::int64_t n_recorded_steps() const noexcept { return step_plans_.n_recorded(); }
  std::int64_t n_replayed_steps() const noexcept { return step_plans_.n_replayed(); }
  /// Allocations of scratch memory so far; constant once warm.
  std::int64_t n_arena_allocations() const noexcept { return arena_.n_chunk_allocations(); }

 private:
  ExecObserver* observe(ExecObserver* wanted, std::string_view part);
  TensorView run(const Batch& batch, ExecObserver* observer);

  const Model& model_;
  Backend& backend_;
  bool replay_steps_;
  std::unique_ptr<KvCache> kv_cache_;
  BatchBuilder batch_;
  Arena arena_;
  StepPlans step_plans_;  // of decode steps in arena_, on the buffers of batch_
  std::optional<NumericsCheck> numerics_;
};

}  // namespace triptych
