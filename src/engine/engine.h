// The step loop: sequences that share a key/value cache, one ragged batch a step. No thread and no socket
// lives here; whoever owns an Engine calls step() until nothing is left. One engine is used by one thread at
// a time.
//
// A step is all or nothing for each sequence: one that fails (media that cannot be encoded, numbers that are
// not finite, no memory, a callback that throws) ends with its error, and the others get what they would have
// got without it.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/block_pool.h"
#include "engine/kv_cache_stats.h"
#include "engine/load.h"
#include "engine/model_runner.h"
#include "engine/prefix_cache.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/vision_embedding_cache.h"

namespace triptych {

struct Sequence;
struct SessionModel;

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
  std::size_t vision_embedding_cache_bytes = 0;  // of pictures seen lately, see VisionEmbeddingCache
  VisionCacheOptions vision_cache = {};          // of the pictures: how many, how exact, where on a disk
  std::size_t prefix_cache_bytes = 0;            // of keys and values that others may use, see PrefixCache
};

class Engine {
 public:
  /// Borrows the model.
  explicit Engine(LoadedModel& model, const EngineOptions& options = {});
  ~Engine();

  using RequestId = triptych::RequestId;
  /// Queues a request. Throws Error(kContextLength) with the numbers when prompt and one token do not fit,
  /// kInvalidArgument for parameters out of range. `on_token` may be empty; it is called at the end of each
  /// step, and when it throws its request ends with that error. With params.n or best_of above 1 the prompt
  /// is computed once, and its sequences share its pages.
  RequestId submit(PreparedRequest request, const SamplingParams& params, TokenCallback on_token = {});
  /// Ends a request at the next step; its result says kCancelled.
  void cancel(RequestId id);
  /// Requests wait or run.
  bool has_work() const noexcept { return !waiting_.empty() || !running_.empty(); }
  /// One step: what came of each sequence of which something came. Valid until the next call. Throws for no
  /// fault of a single sequence.
  std::span<const StepOutput> step();
  /// Takes the result of a finished request; nothing when a sequence of it still waits or runs.
  std::optional<GenerationResult> take_result(RequestId id);

  /// submit, and step until it is done. Throws what its request failed with: an Error, or what `on_token`
  /// threw.
  GenerationResult generate(PreparedRequest request, const SamplingParams& params,
                            TokenCallback on_token = {});

  /// Writes a conversation with its pictures and what the prefix cache holds of its keys and values; gives
  /// the number of their tokens. Throws Error as write_session, and as LoadedModel::prepare.
  std::int64_t save_session(const std::filesystem::path& path, const ChatRequest& conversation);
  /// Reads it back: the prefix cache holds its keys and values (as far as it has room; `n_restored_tokens`
  /// may be null), so that the next prompt of this conversation begins with them, and no picture is encoded.
  /// Throws Error: as parse_session, kUnsupported for another model or type of cache, kContextLength; then
  /// nothing has changed.
  ChatRequest load_session(const std::filesystem::path& path, std::int64_t* n_restored_tokens = nullptr);

  /// Tower and projector alone, and one forward pass that returns the logits [T, V] of all rows, for reports
  /// and parity. `observer` (may be null) sees all taps. Returned views live until the next call on this
  /// engine; logits are in host memory, rows of the tower where the backend has them.
  TensorView encode_media(std::span<const MediaItem> media, ExecObserver* observer);
  TensorView forward_prompt(const PreparedRequest& request, ExecObserver* observer);
  /// After forward_prompt: appends `ids` in one step and returns the logits [n, V] behind each of them. When
  /// it throws nothing was appended.
  TensorView forward_next(std::span<const std::int32_t> ids, ExecObserver* observer);
  TensorView forward_next(std::int32_t id, ExecObserver* observer) {
    return forward_next(std::span(&id, 1), observer);
  }

  /// Sees the operations of all later steps, for measurements; null ends it. Pictures are not taken from the
  /// cache meanwhile.
  void set_observer(ExecObserver* observer) noexcept { observer_ = observer; }

  /// How many pages there are, who holds them and how full they are.
  KvCacheStats kv_cache_stats() const;
  const PrefixCache& prefix_cache() const noexcept { return *prefix_cache_; }

  std::int64_t max_context_tokens() const noexcept { return options_.max_context_tokens; }
  std::size_t kv_cache_bytes() const noexcept { return runner_->kv_cache().bytes(); }
  /// Whether the rows of an item are in the visual cache; for LoadedModel::prepare. Any thread.
  bool has_media_rows(const MediaItem& item) const { return vision_embeddings_.contains(item); }
  VisionCacheStats vision_cache_stats() const { return vision_embeddings_.stats(); }
  /// Pictures and videos that the tower has seen so far; those found in the cache are not counted.
  std::int64_t n_media_encoded() const noexcept { return n_media_encoded_; }
  /// Sequences so far that gave back their blocks for older ones, and were computed again.
  std::int64_t n_preemptions() const noexcept { return n_preemptions_; }
  /// Steps so far that were recorded, and that a record served without the model's code.
  std::int64_t n_recorded_steps() const noexcept { return runner_->n_recorded_steps(); }
  std::int64_t n_replayed_steps() const noexcept { return runner_->n_replayed_steps(); }
  /// Arena allocations so far; constant once warm.
  std::int64_t n_arena_allocations() const noexcept { return runner_->n_arena_allocations(); }

 private:
  // Requests: engine.cc
  void end_cancelled();
  void admit();
  bool find_room(Sequence& s);
  void start(Sequence& s);
  void preempt_youngest();
  void finish(Sequence& s, FinishReason reason);
  void fail_sequence(Sequence& s, std::exception_ptr error);
  void end(Sequence& s, FinishReason reason);
  void collect_finished();
  void drop(RequestId id);
  StepOutput& output_of(Sequence& s);
  SequenceState state_of(const Sequence& s) const;
  void note_states();
  bool has_ended(const Sequence& s) const;
  // Pages: engine_pages.cc
  std::int64_t n_available_blocks() const noexcept;
  std::int32_t allocate_block();
  void reserve_blocks(Sequence& s, std::int64_t n_tokens);
  bool must_copy_page(const Sequence& s) const;
  bool own_last_page(Sequence& s);
  void adopt_pages(Sequence& s);
  void publish_pages(Sequence& s);
  void publish_rest(Sequence& s);
  void forget_pages(Sequence& s);
  PrefixChain prefix_chain(const Sequence& s, const PreparedRequest& request) const;
  // Sessions: engine_session.cc
  SessionModel session_model() const;
  std::int64_t restore_pages(Sequence& s, const PreparedRequest& request, std::int64_t n_tokens,
                             std::span<const std::byte> pages);
  // Several answers to a request: engine_choices.cc
  std::unique_ptr<Sequence> make_sequence(const PreparedRequest& request, const SamplingParams& params,
                                          std::uint64_t seed, int choice);
  void add_siblings(Sequence& s, const PreparedRequest& request, const SamplingParams& params,
                    std::uint64_t seed);
  void fork(Sequence& s, std::span<const float> logits);
  void place_forked();
  // Steps: engine_step.cc
  bool run_step();
  void make_schedule();
  bool encode_scheduled();
  bool take_blocks();
  void make_batch();
  bool run_apart();
  void encode(Sequence& s, ExecObserver* observer);
  void advance(std::size_t in_batch, const TensorView& logits, double ms);
  void accept_token(Sequence& s, std::span<const float> logits);
  void call_back();
  // The sequence of forward_prompt: engine_probe.cc
  void release_probe();
  TensorView run_probe(std::int64_t n_rows, ExecObserver* observer);

  LoadedModel& model_;
  EngineOptions options_;
  ExecObserver* observer_ = nullptr;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<PrefixCache> prefix_cache_;
  Fingerprint prefix_model_;  // of the model, for keys of pages
  VisionEmbeddingCache vision_embeddings_;
  Scheduler scheduler_;

  RequestId next_id_ = 1;
  std::deque<std::unique_ptr<Sequence>> waiting_;   // by age, those preempted in front
  std::vector<std::unique_ptr<Sequence>> running_;  // by age
  std::vector<std::unique_ptr<Sequence>> finished_;
  std::vector<std::unique_ptr<Sequence>> forked_;  // in this step: they have no place yet
  std::unique_ptr<Sequence> probe_;                // of forward_prompt
  std::int64_t n_media_encoded_ = 0;
  std::int64_t n_preemptions_ = 0;

  // Buffers of a step, kept between steps.
  struct InBatch {
    Sequence* sequence = nullptr;
    std::int64_t n_rows = 0;
    std::int32_t last_row = 0;  // whose logits are wanted
  };
  std::vector<SequenceState> states_;  // of running_
  Schedule schedule_;
  std::vector<InBatch> in_batch_;
  std::vector<SequenceRows> rows_;  // of in_batch_
  std::vector<std::int32_t> probe_logit_rows_;
  std::vector<StepOutput> outputs_;  // the first n_outputs_ are this step's
  std::vector<Sequence*> output_sequences_;
  std::size_t n_outputs_ = 0;
};

}  // namespace triptych
