// Between the plain types of the public interface and the engine's own.
#pragma once

#include <optional>
#include <utility>

#include "api/public.h"
#include "engine/engine.h"
#include "engine/video_file.h"
#include "media/region.h"

namespace triptych::api {

triptych::SamplingParams to_inner(const SamplingParams& params);
SamplingParams to_public(const triptych::SamplingParams& params);
triptych::MediaOptions to_inner(const MediaOptions& options);
triptych::VideoOptions to_inner(const VideoOptions& options);
triptych::Region to_inner(const Region& region);
/// Throws Error for a method that is no word for one.
triptych::SpeculativeOptions to_inner(const SpeculativeOptions& options);
/// Throws Error for a kv_cache_dtype that is no word for one.
triptych::EngineOptions to_inner(const EngineOptions& options);
VisionCacheStats to_public(const triptych::VisionCacheStats& stats);
TokenEvent to_public(const triptych::TokenEvent& event);
FinishReason to_public(triptych::FinishReason reason);
StepOutput to_public(const triptych::StepOutput& output);
Result to_public(GenerationResult&& result);

/// To be called while an exception is handled: throws it as a user sees it. What is neither an inner Error
/// nor a lack of memory came from a callback and goes on as it is.
[[noreturn]] void rethrow_public();

/// Runs `f`; what fails in it leaves as Error.
template <typename F>
auto translate_errors(F&& f) -> decltype(f()) {
  try {
    return std::forward<F>(f)();
  } catch (...) {
    rethrow_public();
  }
}

}  // namespace triptych::api
