// Videos that a user names: a folder of frames, an animated GIF or WebP, or a still picture (one frame).
// Opening looks at names, sizes and headers only; the frames that a model wants are decoded by read().
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "media/limits.h"
#include "media/video_sampling.h"

namespace triptych {

struct VideoLimits {
  DecodeLimits picture;                    // of one frame, or of an animation as a whole
  int max_folder_frames = 65536;           // files of a folder
  std::uint64_t max_pixels = 256'000'000;  // width x height x frames taken
};

/// What a user wants otherwise than the model or the file says.
struct VideoOptions {
  std::optional<double> frames_per_s;  // to take; else the model's
  std::optional<int> max_frames;       // to take; else the model's
  /// Rate of the frames as they are: of a folder, or of an animation in place of its own delays.
  std::optional<double> source_frames_per_s;
};

/// The order of people: runs of digits compare as numbers ("frame2" before "frame10"), the rest by bytes.
bool natural_less(std::string_view a, std::string_view b);

class VideoFile {
 public:
  /// A folder's frames are its regular files whose names do not begin with a dot, in natural order; each must
  /// be a picture and all must have one size. Throws Error naming the file: kNotFound, kInvalidFile,
  /// kUnsupported, kInvalidArgument for limits.
  static VideoFile open(const std::filesystem::path& path, const VideoLimits& limits = {});

  /// One that came as bytes: an animation or a picture, or several pictures, its frames in order, all of one
  /// size. `name` stands in error messages. Throws Error as above.
  static VideoFile of_bytes(std::vector<std::string> parts, const std::string& name,
                            const VideoLimits& limits = {});

  int n_frames() const noexcept { return static_cast<int>(n_frames_); }
  int width_px() const noexcept { return width_px_; }
  int height_px() const noexcept { return height_px_; }

  /// Which frames read() takes. A folder without a source rate counts as sampled already: all its frames, as
  /// long as they are not more than the model takes, at the model's rate.
  SampledFrames choose(const VideoSampling& sampling, const VideoOptions& options) const;
  /// The chosen frames, decoded. `sampling` is ModelInfo::video_sampling.
  MediaInput read(const VideoSampling& sampling, const VideoOptions& options = {}) const;

 private:
  VideoFile() = default;
  void open_folder();
  void open_animation();
  void check_size(const ImageInfo& info, const std::string& name);
  bool is_animation() const noexcept { return animation_ != nullptr || (parts_ && parts_->size() == 1); }
  std::span<const std::byte> animation_bytes() const;
  Image read_frame(std::size_t index) const;

  std::filesystem::path path_;
  VideoLimits limits_;
  std::vector<std::filesystem::path> files_;               // of a folder
  std::shared_ptr<const MappedFile> animation_;            // of a file
  std::shared_ptr<const std::vector<std::string>> parts_;  // of bytes
  std::vector<int> durations_ms_;                          // of an animation of several frames, as played
  std::size_t n_frames_ = 0;
  int width_px_ = 0, height_px_ = 0;
};

}  // namespace triptych
