// What a user asks and what comes back, free of any wire format.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/sampling.h"
#include "media/image.h"
#include "media/region.h"
#include "models/model.h"
#include "text/chat_template.h"

namespace triptych {

/// A picture (one frame) or a video (frames at frames_per_s).
struct MediaInput {
  std::vector<Image> frames;
  bool is_video = false;
  double frames_per_s = 0;
  std::vector<double> frame_times_s = {};  // of a video's frames; empty: they follow at frames_per_s
  std::string name = {};                   // file name, may be empty
  double decode_ms = 0;                    // that reading and decoding took, where it was measured
  /// What its sender calls it, so that his later requests find what was made of it; empty: it is known by its
  /// frames. Counts within the tenant whose salt the request has: others cannot find it, nor put something
  /// else under this name.
  std::string client_id = {};
};

/// A conversation with its media, in the order of the image and video parts of its messages.
struct ChatRequest {
  std::vector<ChatMessage> messages;
  std::vector<MediaInput> media;
  MediaOptions media_options;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  OrderedJsonPtr tools;
  OrderedJsonPtr template_variables;
  std::string cache_salt = {};  // of the tenant, see MediaInput::client_id and PreparedRequest
};

/// How a request waits among the others.
struct QueueOptions {
  int priority = 0;         // lower first
  std::string tenant = {};  // whom it is for; tenants share what there is
  double timeout_ms = 0;    // from submission; then it ends with what there is. 0: never
};

/// A request ready to run: everything that needs no backend is done.
struct PreparedRequest {
  std::string prompt;                   // as rendered
  std::vector<std::int32_t> token_ids;  // before placeholders are expanded
  PromptLayout layout;
  std::vector<MediaItem> media;
  QueueOptions queue;
  /// When it came in, which times of the whole request count from: LoadedModel::prepare sets when it began, a
  /// server may set when the bytes came; empty: when it is submitted.
  std::optional<std::chrono::steady_clock::time_point> arrival = {};
  double image_decode_ms = 0;  // of its media, see MediaInput::decode_ms
  double preprocess_ms = 0;    // resizing and normalising them
  /// Requests share keys and values only with those of the same salt, so that nobody can find out by the time
  /// an answer takes what others asked (vLLM's cache_salt).
  std::string cache_salt = {};
};

using RequestId = std::uint64_t;

enum class FinishReason {
  kStop,       // by itself: a stop token or a stop string
  kLength,     // max_tokens, or the context is full
  kCancelled,  // by its owner
  kTimeout,    // QueueOptions::timeout_ms is over
  kError,      // it could not go on; GenerationResult::error says why
};
std::string_view to_string(FinishReason reason) noexcept;

/// One step of an answer.
struct TokenEvent {
  SampledToken token;
  std::string text;  // what became certain with this token; may be empty
  int choice = 0;    // index of the sequence it belongs to, below SamplingParams::best_of
};

/// Why a request failed.
struct RequestError {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

/// What came of one sequence in a step of the engine.
struct StepOutput {
  RequestId id = 0;
  int choice = 0;                             // index among the sequences of the request
  std::vector<TokenEvent> events;             // new tokens and text, in order; may be empty
  std::optional<FinishReason> finish_reason;  // when it ended; the result may be taken once all have
  std::optional<RequestError> error;          // with kError
};

/// Where the time of a request went. A step counts in full for each request that takes part in it.
struct GenerationTimings {
  double image_decode_ms = 0;  // reading and decoding its media, whenever that was
  double preprocess_ms = 0;    // resizing and normalising them
  double queue_ms = 0;         // from submission until it was first admitted among the running
  double encode_ms = 0;        // tower and projector, or taking their rows from the cache
  double prefill_ms = 0;       // steps that compute the prompt; tokens of preempted requests once more
  double decode_ms = 0;        // all later steps
  double detokenize_ms = 0;    // tokens to text
  double first_token_ms = 0;   // from arrival to the first token; 0: none came
  double inter_token_ms = 0;   // mean time between tokens; 0 with fewer than two
  double total_ms = 0;         // from arrival to its end
};

struct GenerationResult {
  std::string text;
  std::vector<std::int32_t> token_ids;  // the stop token not included
  std::vector<SampledToken> tokens;     // with n_logprobs >= 0
  std::vector<Region> regions;          // boxes and points that the answer names
  FinishReason finish_reason = FinishReason::kStop;
  std::optional<RequestError> error;  // with kError; the answer is what came until then
  std::string stop_string;            // the one that ended it, if any
  std::int64_t n_prompt_tokens = 0;
  std::int64_t n_image_tokens = 0;
  std::int64_t n_dropped_image_tokens = 0;  // of them, those that did not stay (ImageTokenOptions)
  std::int64_t n_reused_tokens = 0;         // of the prompt, found in the cache from an earlier request
  std::int64_t n_cached_media = 0;          // pictures and videos whose rows were found in the visual cache
  std::int64_t n_drafted_tokens = 0;        // judged beside the answer's own, see engine/speculation.h
  std::int64_t n_accepted_tokens = 0;       // of them, those that became the answer's
  /// Sum of the log probabilities of its tokens, the one that ended it included, of the model's own
  /// distribution; with n_logprobs >= 0 or best_of.
  std::optional<double> cumulative_logprob = {};
  /// With SamplingParams::n > 1 all n of them, this one first.
  std::vector<GenerationResult> choices = {};
  GenerationTimings timings;
};

/// Called after each token; returning false cancels.
using TokenCallback = std::function<bool(const TokenEvent&)>;

}  // namespace triptych
