// The step loop: sequences with their key/value pages, one ragged batch a step. No thread and no socket lives
// here; whoever owns an Engine calls step() until nothing is left. One engine is used by one thread at a
// time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/numerics_check.h"
#include "engine/kept_sequence.h"
#include "engine/load.h"
#include "engine/request.h"
#include "engine/step_plans.h"
#include "engine/visual_cache.h"

namespace triptych {

struct EngineOptions {
  std::int64_t max_context_tokens = 0;         // of a sequence; 0: the model's own limit
  std::int64_t kv_cache_tokens = 0;            // of all sequences together; 0: max_context_tokens
  std::int64_t max_batch_tokens = 1024;        // of a step; longer prompts are prefilled in pieces
  int max_sequences = 8;                       // running at once
  std::optional<KvDType> kv_cache_dtype = {};  // empty: LoadedModel::auto_kv_dtype()
  // Records a decode step of each shape once and replays it; false: every step goes through the model's code.
  // The bits are the same.
  bool replay_steps = true;
  // What is kept for later requests; both change no answer but for the last bits of sums in another order.
  std::size_t visual_cache_bytes = 0;  // rows of pictures seen lately, see VisualCache
  int max_kept_sequences = 0;          // finished sequences whose keys and values a longer one may go on with
};

class Engine {
 public:
  /// Borrows the model.
  explicit Engine(LoadedModel& model, const EngineOptions& options = {});
  ~Engine();

  using RequestId = std::uint64_t;
  /// Queues a request. Throws Error(kContextLength) with the numbers when prompt and one token do not fit,
  /// kInvalidArgument for parameters out of range. `on_token` may be empty.
  RequestId submit(PreparedRequest request, const SamplingParams& params, TokenCallback on_token = {});
  /// Ends a request at the next step; its result says kCancelled.
  void cancel(RequestId id);
  /// One step of every sequence that runs. False when nothing is left to do.
  bool step();
  /// Takes the result of a finished request; nothing when it still runs.
  std::optional<GenerationResult> take_result(RequestId id);

  /// submit and step until done.
  GenerationResult generate(PreparedRequest request, const SamplingParams& params,
                            TokenCallback on_token = {});

  /// Tower and projector alone, and one forward pass that returns the logits of all rows, for reports and
  /// parity. `observer` (may be null) sees all taps. Returned views live until the next call on this engine.
  TensorView encode_media(std::span<const MediaItem> media, ExecObserver* observer);
  TensorView forward_prompt(const PreparedRequest& request, ExecObserver* observer);
  /// After forward_prompt: appends `id` and returns the logits [1, V] of the next token.
  TensorView forward_next(std::int32_t id, ExecObserver* observer);

  /// Sees the operations of all later steps, for measurements; null ends it. Pictures are not taken from the
  /// cache meanwhile.
  void set_observer(ExecObserver* observer) noexcept { observer_ = observer; }

  std::int64_t max_context_tokens() const noexcept;
  std::size_t kv_cache_bytes() const noexcept;
  /// Pictures and videos that the tower has seen so far; those found in the cache are not counted.
  std::int64_t n_media_encoded() const noexcept { return n_media_encoded_; }
  /// Steps so far that were recorded, and that a record served without the model's code.
  std::int64_t n_recorded_steps() const noexcept { return step_plans_.n_recorded(); }
  std::int64_t n_replayed_steps() const noexcept { return step_plans_.n_replayed(); }
  /// Arena allocations so far; constant once warm.
  std::int64_t n_arena_allocations() const noexcept;

 private:
  struct Sequence;
  class Pages;
  void admit();
  void keep(Sequence& sequence);
  ExecObserver* observe(ExecObserver* wanted, std::string_view part);
  void take_prefix(Sequence& sequence);
  bool find_pages(Sequence& sequence, std::size_t n);
  void finish(Sequence& sequence, FinishReason reason);
  void accept_token(Sequence& sequence, std::span<const float> logits);
  TensorView run_forward(bool every_row_decodes, ExecObserver* observer);
  TensorView run_batch(std::span<Sequence*> sequences, std::span<const std::int64_t> n_rows, bool all_logits,
                       ExecObserver* observer);
  void encode_sequence(Sequence& sequence, ExecObserver* observer);

  LoadedModel& model_;
  EngineOptions options_;
  ExecObserver* observer_ = nullptr;
  std::unique_ptr<KvCache> kv_cache_;
  std::unique_ptr<Pages> pages_;
  Arena arena_;
  StepPlans step_plans_;                   // of decode steps in arena_, with the buffers below
  std::optional<NumericsCheck> numerics_;  // when the model was loaded so
  RequestId next_id_ = 1;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::vector<std::unique_ptr<Sequence>> finished_;
  std::unique_ptr<Sequence> probe_;  // of forward_prompt
  VisualCache visual_cache_;
  std::deque<KeptSequence> kept_;  // finished last first
  std::int64_t n_media_encoded_ = 0;

  // Buffers of a step, kept between steps.
  std::vector<std::int32_t> ids_, positions_, slots_, logit_rows_;
  std::vector<RowLengths> lengths_;
  std::vector<KvSequence> kv_sequences_;
  std::vector<EmbeddingOverride> overrides_;
  std::vector<std::int32_t> override_rows_;
  std::vector<Sequence*> batch_;
  std::vector<std::int64_t> batch_rows_;
};

}  // namespace triptych
