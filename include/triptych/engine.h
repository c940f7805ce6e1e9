// Answering: requests in, tokens out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "triptych/export.h"
#include "triptych/model.h"
#include "triptych/request.h"
#include "triptych/result.h"

namespace triptych::api {

/// Tokens of an answer that are drafted cheaply and judged by the model together. Answers are those without,
/// save last bits of sums that are computed together. Named as in vLLM's --speculative-config.
struct SpeculativeOptions {
  /// "none"; "ngram": what followed where the last tokens stood before, in prompt and answer; "self-draft":
  /// the model without the layers that its config.json says it can do without.
  std::string method = "none";
  int num_speculative_tokens = 8;  // drafted at once, at most; [1, 32]
  int prompt_lookup_max = 4;       // "ngram": last tokens that are looked for
  int prompt_lookup_min = 2;       // and at least so many
};

struct EngineOptions {
  std::int64_t max_context_tokens = 0;   // of a sequence; 0: the model's own limit
  std::int64_t kv_cache_tokens = 0;      // of all sequences together; 0: max_context_tokens
  std::int64_t max_batch_tokens = 1024;  // of a step; longer prompts take several
  int max_sequences = 8;                 // running at once; further requests wait
  /// How keys and values are kept: "fp32", "fp16", "bf16", "int8", "fp8" or "int4"; "auto": int8 beside
  /// quantized weights, else fp16.
  std::string kv_cache_dtype = "auto";
  /// Decode steps are recorded once a shape and replayed; the answers are the same without.
  bool replay_steps = true;
  // What is kept for later requests; both change no answer but for the last bits of sums in another order.
  std::size_t vision_cache_bytes = 0;  // embeddings of pictures seen lately
  /// Keys and values whose tokens, pictures and salt a later request may begin with, in pages; those not used
  /// for longest go first.
  std::size_t prefix_cache_bytes = 0;
  /// Patches of a pass through the vision tower, which takes the pictures of several requests together.
  std::int64_t max_batch_patches = 16384;
  /// While others decode, a step should take no longer: prompts and pictures are worked on in pieces in
  /// between. What shares a step then depends on the time that steps take. 0: no limit.
  double max_step_ms = 0;
  double priority_aging_ms = 10'000;  // waited: worth a level of Request::priority
  /// Shares of tenants (Request::tenant) other than 1.
  std::vector<std::pair<std::string, double>> tenant_weights = {};
  /// Of weights, cache, scratch memory and pictures together; a request that could never fit is refused by
  /// submit. 0: none.
  std::size_t memory_limit_bytes = 0;
  SpeculativeOptions speculation = {};
  // The visual cache: embeddings of pictures seen before.
  std::int64_t vision_cache_items = 2048;   // pictures in memory, in vision_cache_bytes
  std::string vision_cache_dtype = "fp32";  // "int8": rounded, a quarter of the size
  /// A folder that keeps them for later engines, of other processes too; empty: none. Made when it is absent.
  std::string vision_cache_dir = {};
  std::uint64_t vision_cache_dir_bytes = std::uint64_t{4} << 30;
};

/// What the visual cache of an engine did since it was made, and what it holds.
struct VisionCacheStats {
  std::int64_t n_queries = 0;  // pictures whose embeddings were wanted
  std::int64_t n_hits_memory = 0;
  std::int64_t n_hits_disk = 0;
  double saved_ms = 0;  // that the vision tower would have taken
  std::int64_t n_items = 0;
  std::size_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  std::int64_t n_disk_failures = 0;  // files that could not be written, or not be believed
};

/// One token of an answer while it is made.
struct TokenEvent {
  SampledToken token;
  std::string text;  // what became certain with this token, whole characters; may be empty
  int choice = 0;    // which of the request's answers it belongs to, below SamplingParams::n or best_of
};

/// Called after each token, on the thread that steps; returning false cancels the request. It may not call
/// the engine but for cancel().
using TokenCallback = std::function<bool(const TokenEvent&)>;

using RequestId = std::uint64_t;

/// What came of one answer in a step.
struct StepOutput {
  RequestId request_id = 0;
  int choice = 0;                                  // which of the request's answers
  std::vector<TokenEvent> events = {};             // new tokens and text, in order; may be empty
  std::optional<FinishReason> finish_reason = {};  // when it ended; take_result() waits for all of a request
  std::optional<RequestError> error = {};          // with kError
};

/// A conversation that is kept in a file.
struct Session {
  std::vector<ChatMessage> messages;
  MediaOptions media_options = {};
  std::int64_t n_cached_tokens = 0;  // whose keys and values the engine has: they are not computed again
};

/// Runs requests together, one batch a step, without a thread of its own: whoever owns it calls step(). An
/// engine is used by one thread at a time. Engines of one model may live in different threads, which then
/// wait for each other's operations.
class TRIPTYCH_API Engine {
 public:
  /// Keeps the model alive. Throws Error(kInvalidArgument) for sizes out of range or an unknown word.
  explicit Engine(const Model& model, const EngineOptions& options = {});
  ~Engine();
  Engine(Engine&& other) noexcept;
  Engine& operator=(Engine&& other) noexcept;

  /// Renders the prompt, tokenizes it, resizes the pictures, and queues the request. Throws Error:
  /// kContextLength with the numbers when prompt and one token do not fit, kInvalidArgument for what the
  /// model cannot take or sampling parameters out of range, kUnsupported.
  RequestId submit(const Request& request);
  /// Ends a request at the next step, or within one while the vision tower works for it; its result says
  /// kCancelled. An unknown or finished one is left alone. Any thread may call this, while another is in
  /// step().
  void cancel(RequestId id);
  /// One step of every request that runs: what came of those of which something came. A request that fails
  /// ends alone, with kError.
  std::vector<StepOutput> step();
  /// Whether any request waits or runs, so that step() has something to do.
  bool has_work() const noexcept;
  /// Takes the result of a finished request, once; nothing while it runs.
  std::optional<Result> take_result(RequestId id);

  /// Submits, steps until this request is done and returns its result. Throws as submit, and what the request
  /// failed with: an Error, or what `on_token` threw. Other requests go on meanwhile.
  Result generate(const Request& request, const TokenCallback& on_token = {});

  /// Writes a conversation to a file: its messages, the pixels of its pictures and, with a prefix cache, the
  /// keys and values that are kept of it. Returns the number of tokens of the latter. The file appears when
  /// it is complete; only a saved session is replaced. Throws Error: kInvalidArgument for another file in its
  /// place, kIo, and as submit.
  std::int64_t save_session(const std::string& path, const std::vector<ChatMessage>& messages,
                            const MediaOptions& media_options = {});
  /// Reads it back. Requests that go on with its messages begin with its keys and values, without its
  /// pictures being encoded. Throws Error, and has changed nothing then: kNotFound, kInvalidFile (damaged,
  /// cut off, no session), kUnsupported (of another model or format of weights, another type of cache or
  /// another version), kContextLength.
  Session load_session(const std::string& path);

  /// Of a sequence, prompt and answer together.
  std::int64_t max_context_tokens() const noexcept;
  std::size_t kv_cache_bytes() const noexcept;
  VisionCacheStats vision_cache_stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace triptych::api
