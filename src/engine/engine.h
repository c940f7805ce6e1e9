// The step loop: sequences that share a key/value cache, one ragged batch a step. No thread and no socket
// lives here; whoever owns an Engine calls step() until nothing is left. One engine is used by one thread at
// a time.
//
// A step is all or nothing for each sequence: one that fails (media that cannot be encoded, numbers that are
// not finite, no memory, a callback that throws) ends with its error, and the others get what they would have
// got without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/metrics.h"
#include "engine/block_pool.h"
#include "engine/engine_monitor.h"
#include "engine/image_token_choices.h"
#include "engine/kv_cache_stats.h"
#include "engine/load.h"
#include "engine/media_encoder.h"
#include "engine/memory_budget.h"
#include "engine/model_runner.h"
#include "engine/prefix_cache.h"
#include "engine/received_attention.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
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
  SpeculativeOptions speculation = {};  // tokens that are drafted and judged together
  // What is kept for later requests; both change no answer but for the last bits of sums in another order.
  std::size_t vision_embedding_cache_bytes = 0;  // of pictures seen lately, see VisionEmbeddingCache
  VisionCacheOptions vision_cache = {};          // of the pictures: how many, how exact, where on a disk
  std::size_t prefix_cache_bytes = 0;            // of keys and values that others may use, see PrefixCache
  std::int64_t max_batch_patches = 16384;  // of a pass through the tower, those of several requests together
  // While others decode a step should take no longer: prompts and towers go on in pieces in between. Which
  // rows share a step then depends on the time that steps take. 0: no limit.
  double max_step_ms = 0;
  double priority_aging_ms = 10'000;                                // waited: worth a level of priority
  std::vector<std::pair<std::string, double>> tenant_weights = {};  // shares beside 1
  std::size_t memory_limit_bytes =
      0;                       // of weights, cache, arenas and pictures together, see MemoryBudget; 0: none
  ClockMs clock_ms = {};       // empty: the machine's
  Metrics* metrics = nullptr;  // where the engine shows what it does (EngineMetrics); borrowed, may be null
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
  /// Ends a request at the next step, or in the middle of one while the tower works for it; its result says
  /// kCancelled. Any thread may call this, while another is in step().
  void cancel(RequestId id);
  /// Requests wait or run.
  bool has_work() const noexcept { return !waiting_.empty() || !running_.empty(); }
  /// One step: what came of each sequence of which something came. Valid until the next call. Throws for no
  /// fault of a single sequence; when it throws (no memory for what the engine itself keeps) every request is
  /// where it was, the next step goes on, and what had come until then is among what that one returns.
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
  /// and parity. Where pictures keep some of their tokens: of all rows behind the last choice, at least the
  /// last. `observer` (may be null) sees all taps. Returned views live until the next call on this engine;
  /// logits are in host memory, rows of the tower where the backend has them.
  TensorView encode_media(std::span<const MediaItem> media, ExecObserver* observer);
  TensorView forward_prompt(const PreparedRequest& request, ExecObserver* observer);
  /// After forward_prompt: appends `ids` in one step and returns the logits [n, V] behind each of them. When
  /// it throws nothing was appended.
  TensorView forward_next(std::span<const std::int32_t> ids, ExecObserver* observer);
  /// After forward_prompt: logits [n, V] behind each of `ids` without some layers (ascending), whose keys and
  /// values stay as they are. The sequence does not go on.
  TensorView forward_draft(std::span<const std::int32_t> ids, std::span<const std::int32_t> skipped_layers);
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
  /// Blocks of the cache in use now, of kBlockTokens tokens each.
  std::int64_t n_used_blocks() const noexcept { return pool_->n_blocks() - pool_->n_free(); }
  std::size_t kv_cache_bytes() const noexcept { return runner_->kv_cache().bytes(); }
  /// Of the last step(), and of all steps so far.
  const StepStats& last_step() const noexcept { return monitor_.last_step(); }
  const EngineTotals& totals() const noexcept { return monitor_.totals(); }
  /// Whether the rows of an item are in the visual cache; for LoadedModel::prepare. Any thread.
  bool has_media_rows(const MediaItem& item) const { return vision_embeddings_.contains(item); }
  VisionCacheStats vision_cache_stats() const { return vision_embeddings_.stats(); }
  /// Pictures and videos that the tower has seen so far; those found in the cache are not counted.
  std::int64_t n_media_encoded() const noexcept { return totals().n_media_encoded; }
  /// Passes through the tower, and the stretches in which they went on.
  std::int64_t n_encode_passes() const noexcept { return encoder_->n_passes(); }
  std::int64_t n_encode_stretches() const noexcept { return encoder_->n_stretches(); }
  /// Rows that tower and decoder computed beyond those of pictures and sequences.
  std::int64_t n_padded_patches() const noexcept { return encoder_->n_padded_patches(); }
  std::int64_t n_padded_tokens() const noexcept { return runner_->n_padded_tokens(); }
  /// Sequences so far that gave back their blocks for older ones, and were computed again.
  std::int64_t n_preemptions() const noexcept { return totals().n_preemptions; }
  /// Steps so far that were recorded, and that a record served without the model's code.
  std::int64_t n_recorded_steps() const noexcept { return runner_->n_recorded_steps(); }
  std::int64_t n_replayed_steps() const noexcept { return runner_->n_replayed_steps(); }
  /// Drafts so far, of all requests; nothing without speculation.
  SpeculationCounts speculation_counts() const {
    return speculator_ ? speculator_->counts() : SpeculationCounts{};
  }
  /// Arena allocations so far; constant once warm.
  std::int64_t n_arena_allocations() const noexcept { return runner_->n_arena_allocations(); }

 private:
  // Requests: engine.cc
  void mark_cancelled(RequestId id) noexcept;
  void take_cancels();
  bool end_cancelled();
  bool end_timed_out();
  double next_deadline_ms() const;
  std::size_t next_waiting();
  void admit();
  bool find_room(Sequence& s);
  void start(Sequence& s);
  void give_way(Sequence& s);
  bool preempt_youngest();
  void finish(Sequence& s, FinishReason reason);
  void fail_sequence(Sequence& s, std::exception_ptr error) noexcept;
  void end(Sequence& s, FinishReason reason) noexcept;
  void collect_finished();
  void drop(RequestId id);
  void make_room_for_outputs();
  void forget_output(const Sequence& s) noexcept;
  StepOutput& output_of(Sequence& s) noexcept;
  SequenceState state_of(const Sequence& s) const;
  void note_states();
  bool has_ended(const Sequence& s) const;
  // Pages: engine_pages.cc
  std::int64_t n_held_by_pictures() const;
  std::int64_t n_available_blocks() const;
  std::int64_t n_available_blocks(std::int64_t n_of_pictures) const;
  std::int32_t allocate_block();
  void reserve_blocks(Sequence& s, std::int64_t n_tokens);
  bool must_copy_page(const Sequence& s) const;
  bool own_last_page(Sequence& s);
  void adopt_pages(Sequence& s);
  std::int64_t n_publishable(const Sequence& s) const;
  void rename_pages(Sequence& s, std::int64_t n_same);
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
  bool encode_running();
  bool encode_observed();
  bool take_blocks();
  void make_batch();
  bool run_apart();
  void note_step(double ms);
  void count_rows(std::size_t n_sequences, std::size_t first = 0);
  void encode(Sequence& s, ExecObserver* observer);
  void advance(std::size_t in_batch, const TensorView& logits, double ms);
  void accept_token(Sequence& s, std::span<const float> logits);
  void call_back(std::size_t output);
  // Drafts: engine_speculation.cc
  void propose_drafts();
  void drop_drafts();
  void give_back_blocks(Sequence& s, std::int64_t n_tokens);
  void note_step_cost(double ms);
  void accept_rows(Sequence& s, const TensorView& logits);
  // Pictures that keep some of their tokens: engine_image_tokens.cc
  void drop_encoded_rows(Sequence& s);
  bool drop_encoded_rows();
  void drop_known_rows(Sequence& s);
  void drop_cached_tokens(Sequence& s);
  void own_blocks(Sequence& s, std::int64_t first, std::int64_t end);
  CacheAttentionListener* listener_for(std::size_t first, std::size_t n);
  // The sequence of forward_prompt: engine_probe.cc
  void release_probe();
  TensorView run_probe(std::int64_t n_rows, ExecObserver* observer,
                       std::span<const std::int32_t> skipped_layers = {});

  LoadedModel& model_;
  EngineOptions options_;
  ExecObserver* observer_ = nullptr;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<BlockPool> pool_;
  MemoryBudget memory_;
  std::unique_ptr<PrefixCache> prefix_cache_;
  std::unique_ptr<Speculator> speculator_;  // null: nothing is drafted
  Fingerprint prefix_model_;                // of the model, for keys of pages
  VisionEmbeddingCache vision_embeddings_;
  ImageTokenChoices image_token_choices_;
  Scheduler scheduler_;
  std::unique_ptr<MediaEncoder> encoder_;

  // What cancel() says, on any thread.
  std::mutex cancel_mutex_;
  std::vector<RequestId> cancels_;
  std::atomic<bool> has_cancels_ = false;

  RequestId next_id_ = 1;
  std::vector<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // by rank
  std::vector<std::unique_ptr<Sequence>> finished_;
  std::vector<std::unique_ptr<Sequence>> forked_;  // in this step: they have no place yet
  std::unique_ptr<Sequence> probe_;                // of forward_prompt
  EngineMonitor monitor_;

  // Buffers of a step, kept between steps.
  struct InBatch {
    Sequence* sequence = nullptr;
    std::int64_t n_rows = 0;
    std::int32_t last_row = 0;  // whose logits are wanted
  };
  std::vector<SequenceState> states_;   // of running_
  std::vector<const Ticket*> tickets_;  // of waiting_
  std::vector<MediaEncoder::Failure> encode_failures_;
  double encode_ms_ = 0;  // of this step, by the tower
  Schedule schedule_;
  std::vector<InBatch> in_batch_;
  std::vector<SequenceRows> rows_;  // of in_batch_
  ReceivedAttention received_attention_;
  std::vector<Speculator::Candidate> candidates_;
  std::vector<std::int32_t> judged_rows_;  // 0, 1, 2, ...
  int n_drafted_ = 0;                      // rows of this step that were drafted
  std::vector<std::int32_t> probe_logit_rows_;
  std::vector<StepOutput> outputs_;  // the first n_outputs_ are this step's
  std::vector<Sequence*> output_sequences_;
  std::vector<std::size_t> n_called_back_;  // events of each output that its callback has seen
  std::size_t n_outputs_ = 0;
  bool outputs_given_ = true;  // the caller has seen them
};

}  // namespace triptych
