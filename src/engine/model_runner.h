// Runs a model: the batch of a step through its code or a record of an earlier step, and its tower. Owns what
// that needs, the key/value cache, the scratch memory and the records. Knows no request.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/numerics_check.h"
#include "engine/batch_builder.h"
#include "engine/encode_pass.h"
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
  /// The same as a pass that can be left and gone on with between steps; one at a time. Where numbers are
  /// checked, it runs in one stretch.
  /// When it throws, the items are where they were.
  std::unique_ptr<EncodePass> begin_encoding(std::vector<MediaItem>&& items, const ClockMs& clock);
  /// One step -> logits [sum of logit rows, vocab_size] in host memory, sequences in order. Valid until the
  /// next call.
  /// Throws what the model throws; then, of the cache, only what the step was to write is lost: the same
  /// rows, or others in their place, may be run again.
  /// `listener` may be null; the bits are the same with one.
  TensorView forward(std::span<const SequenceRows> sequences, ExecObserver* observer,
                     CacheAttentionListener* listener = nullptr);
  /// The same without some layers (ascending), for drafts: logits of every row. Keys and values of the other
  /// layers are written where the rows say, for the rows to come of the same draft.
  TensorView forward_draft(std::span<const SequenceRows> sequences,
                           std::span<const std::int32_t> skipped_layers);

  /// Of the last call of forward: rows of the batch, against the tokens of its sequences. Of the last call of
  /// encode_media: patches that the tower multiplied, against those of the items' pixels.
  const RowCount& token_rows() const noexcept { return token_rows_; }
  const RowCount& patch_rows() const noexcept { return patch_rows_; }

  /// Steps so far that were recorded, and that a record served without the model's code.
  std::int64_t n_recorded_steps() const noexcept { return step_plans_.n_recorded(); }
  std::int64_t n_replayed_steps() const noexcept { return step_plans_.n_replayed(); }
  /// Allocations of scratch memory so far; constant once warm.
  std::int64_t n_arena_allocations() const noexcept {
    return arena_.n_chunk_allocations() + tower_arena_.n_chunk_allocations();
  }
  /// Scratch memory held, of steps and of the tower.
  std::size_t arena_bytes() const noexcept { return arena_.reserved_bytes() + tower_arena_.reserved_bytes(); }
  /// Rows that the decoder has computed beyond those of the sequences; those of replayed steps are counted as
  /// they were when they were recorded.
  std::int64_t n_padded_tokens() const noexcept { return n_padded_tokens_; }

 private:
  ExecObserver* observe(ExecObserver* wanted, std::string_view part);
  TensorView run(const Batch& batch, ExecObserver* observer, CacheAttentionListener* listener);
  TensorView forward_in(ExecContext& cx, const Batch& batch);

  const Model& model_;
  Backend& backend_;
  bool replay_steps_;
  std::unique_ptr<KvCache> kv_cache_;
  BatchBuilder batch_;
  Arena arena_;
  Arena tower_arena_;     // of the pass
  StepPlans step_plans_;  // of decode steps in arena_, on the buffers of batch_
  std::optional<NumericsCheck> numerics_;
  std::int64_t n_padded_tokens_ = 0;
  RowCount token_rows_, patch_rows_;
};

}  // namespace triptych
