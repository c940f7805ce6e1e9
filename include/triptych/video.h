// Videos: a folder of frames, an animated GIF or WebP, or frames in memory.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "triptych/export.h"
#include "triptych/image.h"
#include "triptych/media_options.h"

namespace triptych::api {

class Model;

/// The frames that a model is shown. Copies share the pixels, which never change, so any thread may read
/// them.
class TRIPTYCH_API Video {
 public:
  /// Copies frames (at least one, all of one size) that follow each other at frames_per_s (> 0). All of them
  /// are shown. Throws Error(kInvalidArgument).
  static Video from_frames(std::span<const Image> frames, double frames_per_s);

  Video(const Video& other) noexcept;
  Video& operator=(const Video& other) noexcept;
  ~Video();

  int n_frames() const noexcept;
  /// On average over the video.
  double frames_per_s() const noexcept;
  /// Copies frame `index`. Throws Error(kInvalidArgument) outside [0, n_frames).
  Image frame(int index) const;

 private:
  struct Impl;
  friend struct Access;
  explicit Video(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

/// A video on disk, opened by its headers alone; read() decodes the frames that a model wants. Copies share
/// what was opened; any thread may read.
class TRIPTYCH_API VideoFile {
 public:
  /// An animated GIF or WebP, a picture (one frame), or a folder, whose frames are its files in the order of
  /// their names ("frame2" before "frame10", those that begin with a dot left out), all of one size. Throws
  /// Error naming the file: kNotFound, kIo, kInvalidFile, kUnsupported, kInvalidArgument (over a limit).
  static VideoFile open(const std::string& path);

  VideoFile(const VideoFile& other) noexcept;
  VideoFile& operator=(const VideoFile& other) noexcept;
  ~VideoFile();

  int n_frames() const noexcept;
  int width_px() const noexcept;
  int height_px() const noexcept;

  /// Decodes the frames that the model takes. A folder without a source rate counts as sampled already: all
  /// its frames are taken, as long as they are not more than the model takes. Throws Error: kUnsupported when
  /// the model takes no videos, kInvalidFile, kInvalidArgument for options out of range or more than 256
  /// million pixels in all.
  Video read(const Model& model, const VideoOptions& options = {}) const;

 private:
  struct Impl;
  explicit VideoFile(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace triptych::api
