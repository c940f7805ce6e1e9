// What a model answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "triptych/error.h"
#include "triptych/export.h"
#include "triptych/region.h"
#include "triptych/sampling.h"

namespace triptych::api {

enum class FinishReason {
  kStop,       // the model ended its answer, or a stop string or stop token came
  kLength,     // max_tokens, or the context is full
  kCancelled,  // Engine::cancel, or a callback that returned false
  kError,      // it could not go on; `error` says why
  kTimeout,    // Request::timeout_ms is over; the answer is what came until then
};

/// "stop", "length", "cancelled", "error", "timeout".
TRIPTYCH_API std::string_view to_string(FinishReason reason) noexcept;

/// Why a request failed.
struct RequestError {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

/// Where the time of a request went. A step counts in full for each request that takes part in it.
struct Timings {
  double image_decode_ms = 0;  // reading and decoding its pictures and videos, whenever that was
  double preprocess_ms = 0;    // resizing and normalising them
  double queue_ms = 0;         // from submission until it was admitted among the running
  double encode_ms = 0;        // pictures: tower and projector, or the cache of what they gave
  double prefill_ms = 0;       // the steps that read the prompt
  double decode_ms = 0;        // all later steps
  double detokenize_ms = 0;    // tokens to text
  double first_token_ms = 0;   // from the call of submit() to the first token; 0: none came
  double inter_token_ms = 0;   // mean time between tokens; 0 with fewer than two
  double total_ms = 0;         // from the call of submit() to its end
};

struct Result {
  std::string text;                     // UTF-8, without stop strings and control tokens
  std::vector<std::int32_t> token_ids;  // the stop token not included
  std::vector<SampledToken> tokens;     // of token_ids, with SamplingParams::n_logprobs >= 0; else empty
  std::vector<Region> regions;          // boxes and points that the answer names
  FinishReason finish_reason = FinishReason::kStop;
  std::optional<RequestError> error = {};  // with kError; the answer is what came until then
  std::string stop_string;                 // the one that ended the answer, if any
  std::int64_t n_prompt_tokens = 0;        // pictures included
  std::int64_t n_image_tokens = 0;         // of the prompt, those of pictures and videos
  std::int64_t n_dropped_image_tokens =
      0;                             // of them, those that did not stay (MediaOptions::image_tokens_keep)
  std::int64_t n_reused_tokens = 0;  // of the prompt, found in the prefix cache
  std::int64_t n_cached_media = 0;   // pictures and videos found in the visual cache
  Timings timings;
  std::int64_t n_drafted_tokens = 0;   // judged beside the answer's own, with SpeculativeOptions
  std::int64_t n_accepted_tokens = 0;  // of them, those that became the answer's
  /// Sum of the logprobs of its tokens and of the one that ended it, with n_logprobs >= 0 or best_of > n.
  std::optional<double> cumulative_logprob = {};
  /// With SamplingParams::n > 1 all n of them, this one first; by likelihood with best_of > n.
  std::vector<Result> choices = {};
};

}  // namespace triptych::api
