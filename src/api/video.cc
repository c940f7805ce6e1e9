#include <cmath>

#include "api/convert.h"
#include "api/impl.h"
#include "base/error.h"

namespace triptych::api {

Video Access::make_video(MediaInput media) {
  return Video(std::make_shared<const Video::Impl>(Video::Impl{std::move(media)}));
}

Video::Video(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
Video::Video(const Video& other) noexcept = default;
Video& Video::operator=(const Video& other) noexcept = default;
Video::~Video() = default;

Video Video::from_frames(std::span<const Image> frames, double frames_per_s) {
  return translate_errors([&] {
    if (frames.empty()) fail(triptych::ErrorCode::kInvalidArgument, "a video needs at least one frame");
    if (!(frames_per_s > 0) || !std::isfinite(frames_per_s))
      fail(triptych::ErrorCode::kInvalidArgument, "frames_per_s: expected a number above 0, got {}",
           frames_per_s);
    MediaInput media{.frames = {}, .is_video = true, .frames_per_s = frames_per_s};
    for (const Image& frame : frames) {
      if (frame.width_px() != frames[0].width_px() || frame.height_px() != frames[0].height_px())
        fail(triptych::ErrorCode::kInvalidArgument,
             "a frame of {}x{} pixels, the first of the video has {}x{}", frame.width_px(), frame.height_px(),
             frames[0].width_px(), frames[0].height_px());
      media.frames.push_back(Access::media(frame)->frames.front());
    }
    return Access::make_video(std::move(media));
  });
}

int Video::n_frames() const noexcept { return static_cast<int>(impl_->media.frames.size()); }
double Video::frames_per_s() const noexcept { return impl_->media.frames_per_s; }

Image Video::frame(int index) const {
  return translate_errors([&] {
    if (index < 0 || index >= n_frames())
      fail(triptych::ErrorCode::kInvalidArgument, "frame {} of a video of {}", index, n_frames());
    return Access::make_image(impl_->media.frames[static_cast<std::size_t>(index)]);
  });
}

VideoFile::VideoFile(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
VideoFile::VideoFile(const VideoFile& other) noexcept = default;
VideoFile& VideoFile::operator=(const VideoFile& other) noexcept = default;
VideoFile::~VideoFile() = default;

VideoFile VideoFile::open(const std::string& path) {
  return translate_errors(
      [&] { return VideoFile(std::make_shared<const Impl>(Impl{triptych::VideoFile::open(path)})); });
}

int VideoFile::n_frames() const noexcept { return impl_->file.n_frames(); }
int VideoFile::width_px() const noexcept { return impl_->file.width_px(); }
int VideoFile::height_px() const noexcept { return impl_->file.height_px(); }

Video VideoFile::read(const Model& model, const VideoOptions& options) const {
  return translate_errors([&] {
    const ModelInfo& info = Access::model(model).info();
    triptych::check_takes_videos(info);
    return Access::make_video(impl_->file.read(info.video_sampling, to_inner(options)));
  });
}

}  // namespace triptych::api
