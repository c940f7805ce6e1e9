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
};

/// "stop", "length", "cancelled", "error".
TRIPTYCH_API std::string_view to_string(FinishReason reason) noexcept;

/// Why a request failed.
struct RequestError {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

struct Timings {
  double encode_ms = 0;   // pictures: tower and projector
  double prefill_ms = 0;  // the steps that read the prompt
  double decode_ms = 0;   // all later steps
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
  std::int64_t n_reused_tokens = 0;        // of the prompt, found in the prefix cache
  Timings timings;
  /// Sum of the logprobs of its tokens and of the one that ended it, with n_logprobs >= 0 or best_of > n.
  std::optional<double> cumulative_logprob = {};
  /// With SamplingParams::n > 1 all n of them, this one first; by likelihood with best_of > n.
  std::vector<Result> choices = {};
};

}  // namespace triptych::api
