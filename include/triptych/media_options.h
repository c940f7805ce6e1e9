// What a user wants of pictures and videos otherwise than the model or the file says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "triptych/export.h"  // the namespace

namespace triptych::api {

/// Limits for models of dynamic resolution, pixels of one picture as the tower sees it (0: the model's own);
/// of a video a frame's, with Qwen3-VL those of all its frames together. Other models do not look at them.
struct MediaOptions {
  std::int64_t min_pixels = 0;
  std::int64_t max_pixels = 0;
  /// Share of the tokens of each picture and video that stays, in (0, 1], rounded up: less memory for keys
  /// and values, and shorter steps, against accuracy (docs/accuracy.md). 1: all of them, and nothing changes.
  /// For another share Engine::submit throws Error(kInvalidArgument).
  double image_tokens_keep = 1;
  /// By what they are chosen: "diversity" (of the rows before the language model; the others are never
  /// computed), "key-norm-low" or "key-norm-high" (of their keys), "attention" (from the text behind them).
  /// Another word: Error(kInvalidArgument).
  std::string image_tokens_selection = "diversity";
};

/// Which frames of a video to take.
struct VideoOptions {
  std::optional<double> frames_per_s = {};  // to take; else the model's
  std::optional<int> max_frames = {};       // to take; else the model's
  /// Rate of the frames as they are: of a folder, or of an animation in place of its own delays.
  std::optional<double> source_frames_per_s = {};
};

}  // namespace triptych::api
