// The image and video processor of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: any resolution, cut into patches in the
// order the tower's merger wants. Reference: transformers 5.24, image_processing_pil_qwen2_vl.py,
// video_processing_qwen2_vl.py and video_processing_qwen3_vl.py. Frames of videos are resized as pictures are
// (Pillow's bicubic; the reference uses torchvision's there, which is a few grey levels off Pillow).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/json.h"
#include "media/image_resize.h"
#include "media/normalize.h"
#include "models/model.h"
#include "nn/qwen_vision.h"

namespace triptych {

struct PixelLimits {
  std::int64_t min_pixels = 0;
  std::int64_t max_pixels = 0;
};

/// The size nearest to the picture's whose sides are multiples of `factor` (ties to the even multiple) and
/// whose area lies within the limits. Throws Error(kInvalidArgument) when one side is more than 200 times the
/// other.
SizePx smart_resize(SizePx size, int factor, PixelLimits limits);

/// The same for the frames of a Qwen3-VL video, whose areas together lie within the limits: n_frames, rounded
/// to whole temporal patches, count. A frame with a side below `factor` is first enlarged to it.
SizePx smart_resize_video(SizePx size, int n_frames, int factor, int temporal_factor, PixelLimits limits);

class Qwen2ImageProcessor {
 public:
  struct Geometry {  // of the tower
    int patch_size_px = 14;
    int temporal_patch_size = 2;
    int merge_size = 2;
    friend bool operator==(const Geometry&, const Geometry&) = default;
  };

  /// Pictures: `config` is preprocessor_config.json; what is missing takes the class defaults (limits 56 * 56
  /// and 1280 * 28 * 28). Throws Error(kInvalidFile) when it does not fit the tower.
  static Qwen2ImageProcessor for_images(const std::optional<JsonView>& config, const Geometry& tower);
  /// Videos: limits of a frame, by default 128 * 28 * 28 and 768 * 28 * 28. A directory without a video
  /// processor uses its image processor, as the reference does: `config` is whichever there is.
  static Qwen2ImageProcessor for_videos(const std::optional<JsonView>& config, const Geometry& tower);
  /// Videos of Qwen3-VL: limits of all frames together, by default 128 * 32 * 32 and 768 * 32 * 32; mean and
  /// standard deviation 0.5; frames are sampled to the end of the video.
  static Qwen2ImageProcessor for_qwen3_videos(const std::optional<JsonView>& config, const Geometry& tower);

  /// Sizes, grid and token count. `options` override the limits. Throws Error(kInvalidArgument) for a picture
  /// or limits that cannot be met, kContextLength when it takes more than max_tokens.
  MediaPlan plan(const MediaMeta& meta, const MediaOptions& options, std::int64_t max_tokens) const;

  /// Patches [grid_t * grid_h * grid_w, 3 * temporal_patch_size * patch * patch] float32, inside a patch in
  /// the order channel, time, y, x. The last frame is repeated until the temporal patches are full; a picture
  /// is one frame.
  Tensor operator()(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const;

  const PixelLimits& limits() const noexcept { return limits_; }
  /// Frames that a video processor wants of a video: fps, min_frames and max_frames of its file.
  const VideoSampling& video_sampling() const noexcept { return video_sampling_; }

 private:
  /// What a file leaves out is as in *this.
  Qwen2ImageProcessor parse(const std::optional<JsonView>& config, const Geometry& tower) const;
  PixelLimits limits_for(const MediaMeta& meta, const MediaOptions& options) const;

  Geometry geometry_;
  PixelLimits limits_;
  bool do_resize_ = true;
  Filter resample_ = Filter::kBicubic;
  NormalizeOptions normalize_;
  bool limits_whole_video_ = false;         // else a frame
  bool cap_pixels_per_frame_ = false;       // of a video
  std::int64_t max_video_tokens_ = 128000;  // of a video; where limits are the whole video's, of a frame
  VideoSampling video_sampling_;
};

/// The frames of the items, one after another. In the arena.
std::span<const VisionFrame> vision_frames(ExecContext& cx, std::span<const MediaItem> items);

}  // namespace triptych
