#include "api/convert.h"

#include <new>

#include "backend/kv_dtype.h"
#include "base/error.h"

namespace triptych::api {
namespace {

std::vector<TokenLogprob> to_public(const std::vector<triptych::TokenLogprob>& tokens) {
  std::vector<TokenLogprob> out;
  out.reserve(tokens.size());
  for (const triptych::TokenLogprob& token : tokens)
    out.push_back({.id = token.id, .logprob = token.logprob});
  return out;
}

SampledToken to_public(const triptych::SampledToken& token) {
  return {.id = token.id, .logprob = token.logprob, .top = to_public(token.top)};
}

Region to_public(triptych::Region&& region) {
  Region out{.kind = static_cast<RegionKind>(region.kind),
             .label = std::move(region.label),
             .media_index = region.media_index,
             .points_1000 = {},
             .points_px = {}};
  for (const triptych::PointPerMille& p : region.points_1000) out.points_1000.push_back({p.x, p.y});
  for (const triptych::PointPx& p : region.points_px) out.points_px.push_back({p.x, p.y});
  return out;
}

ErrorCode to_public(triptych::ErrorCode code) { return static_cast<ErrorCode>(code); }

std::optional<RequestError> to_public(const std::optional<triptych::RequestError>& error) {
  if (!error) return std::nullopt;
  return RequestError{to_public(error->code), error->message};
}

// Converted by number above.
static_assert(static_cast<int>(RegionKind::kPoint) == static_cast<int>(triptych::RegionKind::kPoint));
static_assert(static_cast<int>(RegionKind::kQuad) == static_cast<int>(triptych::RegionKind::kQuad));
static_assert(static_cast<int>(ErrorCode::kInvalidFile) ==
              static_cast<int>(triptych::ErrorCode::kInvalidFile));
static_assert(static_cast<int>(ErrorCode::kNotFound) == static_cast<int>(triptych::ErrorCode::kNotFound));
static_assert(static_cast<int>(ErrorCode::kUnsupported) ==
              static_cast<int>(triptych::ErrorCode::kUnsupported));
static_assert(static_cast<int>(ErrorCode::kContextLength) ==
              static_cast<int>(triptych::ErrorCode::kContextLength));
static_assert(static_cast<int>(ErrorCode::kOutOfMemory) ==
              static_cast<int>(triptych::ErrorCode::kOutOfMemory));
static_assert(static_cast<int>(ErrorCode::kIo) == static_cast<int>(triptych::ErrorCode::kIo));
static_assert(static_cast<int>(ErrorCode::kInternal) == static_cast<int>(triptych::ErrorCode::kInternal));

}  // namespace

triptych::SamplingParams to_inner(const SamplingParams& params) {
  triptych::SamplingParams out;
  out.temperature = params.temperature;
  out.top_k = params.top_k;
  out.top_p = params.top_p;
  out.min_p = params.min_p;
  out.typical_p = params.typical_p;
  out.repetition_penalty = params.repetition_penalty;
  out.frequency_penalty = params.frequency_penalty;
  out.presence_penalty = params.presence_penalty;
  out.logit_bias = params.logit_bias;
  out.seed = params.seed;
  out.max_tokens = params.max_tokens;
  out.stop = params.stop;
  out.stop_token_ids = params.stop_token_ids;
  out.ignore_eos = params.ignore_eos;
  out.n_logprobs = params.n_logprobs;
  out.n = params.n;
  out.best_of = params.best_of;
  out.constraint = {.json_schema = params.guided_json,
                    .regex = params.guided_regex,
                    .choice = params.guided_choice,
                    .grammar = params.guided_grammar};
  return out;
}

SamplingParams to_public(const triptych::SamplingParams& params) {
  return {.temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .typical_p = params.typical_p,
          .repetition_penalty = params.repetition_penalty,
          .frequency_penalty = params.frequency_penalty,
          .presence_penalty = params.presence_penalty,
          .logit_bias = params.logit_bias,
          .seed = params.seed,
          .max_tokens = params.max_tokens,
          .stop = params.stop,
          .stop_token_ids = params.stop_token_ids,
          .ignore_eos = params.ignore_eos,
          .n_logprobs = params.n_logprobs,
          .n = params.n,
          .best_of = params.best_of,
          .guided_json = params.constraint.json_schema,
          .guided_regex = params.constraint.regex,
          .guided_choice = params.constraint.choice,
          .guided_grammar = params.constraint.grammar};
}

triptych::MediaOptions to_inner(const MediaOptions& options) {
  triptych::MediaOptions out;
  out.min_pixels = options.min_pixels;
  out.max_pixels = options.max_pixels;
  out.image_tokens.keep = options.image_tokens_keep;
  out.image_tokens.selection = triptych::parse_image_token_selection(options.image_tokens_selection);
  out.image_tokens.validate();
  return out;
}

triptych::VideoOptions to_inner(const VideoOptions& options) {
  return {.frames_per_s = options.frames_per_s,
          .max_frames = options.max_frames,
          .source_frames_per_s = options.source_frames_per_s};
}

triptych::Region to_inner(const Region& region) {
  triptych::Region out;
  out.kind = static_cast<triptych::RegionKind>(region.kind);
  out.label = region.label;
  out.media_index = region.media_index;
  for (const PointPerMille& p : region.points_1000) out.points_1000.push_back({p.x, p.y});
  for (const PointPx& p : region.points_px) out.points_px.push_back({p.x, p.y});
  return out;
}

triptych::SpeculativeOptions to_inner(const SpeculativeOptions& options) {
  triptych::SpeculativeOptions out;
  out.method = parse_speculation_method(options.method);
  out.num_speculative_tokens = options.num_speculative_tokens;
  out.prompt_lookup_max = options.prompt_lookup_max;
  out.prompt_lookup_min = options.prompt_lookup_min;
  return out;
}

triptych::EngineOptions to_inner(const EngineOptions& options) {
  triptych::EngineOptions out;
  out.max_context_tokens = options.max_context_tokens;
  out.kv_cache_tokens = options.kv_cache_tokens;
  out.max_batch_tokens = options.max_batch_tokens;
  out.max_sequences = options.max_sequences;
  try {
    out.kv_cache_dtype = parse_kv_dtype(options.kv_cache_dtype);
  } catch (const triptych::Error& error) {
    throw error.with_context("EngineOptions::kv_cache_dtype");
  }
  out.replay_steps = options.replay_steps;
  out.vision_embedding_cache_bytes = options.vision_cache_bytes;
  out.prefix_cache_bytes = options.prefix_cache_bytes;
  out.max_batch_patches = options.max_batch_patches;
  out.max_step_ms = options.max_step_ms;
  out.priority_aging_ms = options.priority_aging_ms;
  out.tenant_weights = options.tenant_weights;
  out.memory_limit_bytes = options.memory_limit_bytes;
  out.speculation = to_inner(options.speculation);
  out.vision_cache.max_items = options.vision_cache_items;
  try {
    out.vision_cache.dtype = parse_vision_rows_dtype(options.vision_cache_dtype);
  } catch (const triptych::Error& error) {
    throw error.with_context("EngineOptions::vision_cache_dtype");
  }
  out.vision_cache.directory = options.vision_cache_dir;
  out.vision_cache.directory_max_bytes = options.vision_cache_dir_bytes;
  return out;
}

VisionCacheStats to_public(const triptych::VisionCacheStats& stats) {
  return {.n_queries = stats.n_queries,
          .n_hits_memory = stats.n_hits_memory,
          .n_hits_disk = stats.n_hits_disk,
          .saved_ms = stats.saved_ms,
          .n_items = stats.n_items,
          .memory_bytes = stats.memory_bytes,
          .disk_bytes = stats.disk.held_bytes,
          .n_disk_failures = stats.disk.n_write_failures + stats.disk.n_refused};
}

TokenEvent to_public(const triptych::TokenEvent& event) {
  return {to_public(event.token), event.text, event.choice};
}

FinishReason to_public(triptych::FinishReason reason) {
  switch (reason) {
    case triptych::FinishReason::kStop:
      return FinishReason::kStop;
    case triptych::FinishReason::kLength:
      return FinishReason::kLength;
    case triptych::FinishReason::kCancelled:
      return FinishReason::kCancelled;
    case triptych::FinishReason::kTimeout:
      return FinishReason::kTimeout;
    case triptych::FinishReason::kError:
      return FinishReason::kError;
  }
  return FinishReason::kError;
}

StepOutput to_public(const triptych::StepOutput& output) {
  StepOutput out{.request_id = output.id, .choice = output.choice};
  for (const triptych::TokenEvent& event : output.events) out.events.push_back(to_public(event));
  if (output.finish_reason) out.finish_reason = to_public(*output.finish_reason);
  out.error = to_public(output.error);
  return out;
}

Result to_public(GenerationResult&& result) {
  Result out;
  out.text = std::move(result.text);
  out.token_ids = std::move(result.token_ids);
  for (const triptych::SampledToken& token : result.tokens) out.tokens.push_back(to_public(token));
  for (triptych::Region& region : result.regions) out.regions.push_back(to_public(std::move(region)));
  out.finish_reason = to_public(result.finish_reason);
  out.error = to_public(result.error);
  out.stop_string = std::move(result.stop_string);
  out.n_prompt_tokens = result.n_prompt_tokens;
  out.n_image_tokens = result.n_image_tokens;
  out.n_dropped_image_tokens = result.n_dropped_image_tokens;
  out.n_reused_tokens = result.n_reused_tokens;
  out.n_cached_media = result.n_cached_media;
  const triptych::GenerationTimings& t = result.timings;
  out.timings = {.image_decode_ms = t.image_decode_ms,
                 .preprocess_ms = t.preprocess_ms,
                 .queue_ms = t.queue_ms,
                 .encode_ms = t.encode_ms,
                 .prefill_ms = t.prefill_ms,
                 .decode_ms = t.decode_ms,
                 .detokenize_ms = t.detokenize_ms,
                 .first_token_ms = t.first_token_ms,
                 .inter_token_ms = t.inter_token_ms,
                 .total_ms = t.total_ms};
  out.n_drafted_tokens = result.n_drafted_tokens;
  out.n_accepted_tokens = result.n_accepted_tokens;
  out.cumulative_logprob = result.cumulative_logprob;
  for (GenerationResult& choice : result.choices) out.choices.push_back(to_public(std::move(choice)));
  return out;
}

void rethrow_public() {
  try {
    throw;
  } catch (const triptych::Error& error) {
    throw Error(to_public(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kOutOfMemory, "out of memory");
  }
}

Error::Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
Error::Error(const Error& other) noexcept = default;
Error& Error::operator=(const Error& other) noexcept = default;
Error::~Error() = default;

std::string_view to_string(ErrorCode code) noexcept {
  return triptych::to_string(static_cast<triptych::ErrorCode>(code));
}

std::string_view to_string(RegionKind kind) noexcept {
  return triptych::to_string(static_cast<triptych::RegionKind>(kind));
}

std::string_view to_string(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kTimeout:
      return "timeout";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

}  // namespace triptych::api
