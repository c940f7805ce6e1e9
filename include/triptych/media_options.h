// What a user wants of pictures and videos otherwise than the model or the file says.
#pragma once

#include <cstdint>
#include <optional>

#include "triptych/export.h"  // the namespace

namespace triptych::api {

/// Limits for models of dynamic resolution, pixels of one picture as the tower sees it (0: the model's own);
/// of a video a frame's, with Qwen3-VL those of all its frames together. Other models do not look at them.
struct MediaOptions {
  std::int64_t min_pixels = 0;
  std::int64_t max_pixels = 0;
};

/// Which frames of a video to take.
struct VideoOptions {
  std::optional<double> frames_per_s = {};  // to take; else the model's
  std::optional<int> max_frames = {};       // to take; else the model's
  /// Rate of the frames as they are: of a folder, or of an animation in place of its own delays.
  std::optional<double> source_frames_per_s = {};
};

}  // namespace triptych::api
