#include "engine/video_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/profile.h"
#include "base/stopwatch.h"

namespace triptych {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The digits at `at` without leading zeros; `at` goes behind them.
std::string_view take_number(std::string_view text, std::size_t& at) {
  while (at < text.size() && text[at] == '0') ++at;
  const std::size_t begin = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  return text.substr(begin, at - begin);
}

VideoSampling merged(VideoSampling sampling, const VideoOptions& options) {
  if (options.frames_per_s) sampling.frames_per_s = *options.frames_per_s;
  if (options.max_frames) sampling.max_frames = *options.max_frames;
  sampling.min_frames = std::min(sampling.min_frames, sampling.max_frames);
  return sampling;
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = take_number(a, i);
      const std::string_view y = take_number(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else if (a[i] != b[j]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
    } else {
      ++i;
      ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // equal but for leading zeros
}

VideoFile VideoFile::open(const std::filesystem::path& path, const VideoLimits& limits) {
  const ProfileZone zone("image decode");
  VideoFile out;
  out.path_ = path;
  out.limits_ = limits;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    out.open_folder();
  } else {
    out.animation_ = MappedFile::open(path, limits.picture.max_file_bytes);
    out.open_animation();
  }
  return out;
}

VideoFile VideoFile::of_bytes(std::vector<std::string> parts, const std::string& name,
                              const VideoLimits& limits) {
  const ProfileZone zone("image decode");
  VideoFile out;
  out.path_ = name;
  out.limits_ = limits;
  if (parts.empty()) fail(ErrorCode::kInvalidArgument, "{}: a video without frames", name);
  out.parts_ = std::make_shared<const std::vector<std::string>>(std::move(parts));
  if (out.is_animation()) {
    out.open_animation();
    return out;
  }
  for (const std::string& part : *out.parts_) {
    const std::string frame = fmt::format("{}, frame {}", name, ++out.n_frames_);
    out.check_size(probe_image(std::as_bytes(std::span(part)), limits.picture, frame), frame);
  }
  return out;
}

// The first frame's is that of all.
void VideoFile::check_size(const ImageInfo& info, const std::string& name) {
  if (width_px_ == 0) {
    width_px_ = info.width_px;
    height_px_ = info.height_px;
  } else if (info.width_px != width_px_ || info.height_px != height_px_) {
    fail(ErrorCode::kInvalidArgument, "{}: a frame of {}x{} pixels, the first of the video has {}x{}", name,
         info.width_px, info.height_px, width_px_, height_px_);
  }
}

void VideoFile::open_folder() {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.empty() || name.front() == '.' || !it->is_regular_file(error)) continue;
    if (names.size() == static_cast<std::size_t>(limits_.max_folder_frames))
      fail(ErrorCode::kInvalidArgument, "{}: more than {} files", path_.string(), limits_.max_folder_frames);
    names.push_back(std::move(name));
  }
  if (error) fail(ErrorCode::kIo, "{}: {}", path_.string(), error.message());
  if (names.empty())
    fail(ErrorCode::kInvalidFile, "{}: a video without frames: no file in it", path_.string());
  std::sort(names.begin(), names.end(), natural_less);
  for (const std::string& name : names) {
    files_.push_back(path_ / name);
    const std::string file = files_.back().string();
    const auto bytes = MappedFile::open(files_.back(), limits_.picture.max_file_bytes);
    check_size(probe_image(bytes->bytes(), limits_.picture, file), file);
  }
  n_frames_ = files_.size();
}

std::span<const std::byte> VideoFile::animation_bytes() const {
  return animation_ != nullptr ? animation_->bytes() : std::as_bytes(std::span(parts_->front()));
}

void VideoFile::open_animation() {
  const AnimationInfo info = probe_animation(animation_bytes(), limits_.picture, path_.string());
  width_px_ = info.width_px;
  height_px_ = info.height_px;
  n_frames_ = info.durations_ms.size();
  if (n_frames_ > 1) durations_ms_ = played_durations_ms(info.durations_ms);
}

SampledFrames VideoFile::choose(const VideoSampling& wanted, const VideoOptions& options) const {
  const VideoSampling sampling = merged(wanted, options);
  if (options.source_frames_per_s) return sample_frames(n_frames(), *options.source_frames_per_s, sampling);
  if (!durations_ms_.empty()) return sample_frames(durations_ms_, sampling);
  SampledFrames out = sample_frames(n_frames(), sampling.frames_per_s, sampling);  // checks the numbers
  if (n_frames() > sampling.max_frames) return out;
  out = {.indices = {}, .frames_per_s = sampling.frames_per_s, .times_s = {}};
  for (int i = 0; i < n_frames(); ++i) {
    out.indices.push_back(i);
    out.times_s.push_back(i / sampling.frames_per_s);
  }
  return out;
}

MediaInput VideoFile::read(const VideoSampling& sampling, const VideoOptions& options) const {
  const ProfileZone zone("image decode");
  const Stopwatch watch;
  const SampledFrames chosen = choose(sampling, options);
  const std::uint64_t n_pixels =
      static_cast<std::uint64_t>(width_px_) * static_cast<std::uint64_t>(height_px_) * chosen.indices.size();
  if (n_pixels > limits_.max_pixels)
    fail(ErrorCode::kInvalidArgument,
         "{}: {} frames of {}x{} pixels are {} pixels, at most {} are allowed; fewer frames per second or a "
         "smaller number of frames makes it less",
         path_.string(), chosen.indices.size(), width_px_, height_px_, n_pixels, limits_.max_pixels);
  MediaInput out{.frames = {},
                 .is_video = true,
                 .frames_per_s = chosen.frames_per_s,
                 .frame_times_s = chosen.times_s,
                 .name = path_.filename().string()};
  if (is_animation()) {
    out.frames = decode_frames(animation_bytes(), limits_.picture, path_.string(), chosen.indices);
    out.decode_ms = watch.ms();
    return out;
  }
  for (const int index : chosen.indices) out.frames.push_back(read_frame(static_cast<std::size_t>(index)));
  out.decode_ms = watch.ms();
  return out;
}

Image VideoFile::read_frame(std::size_t index) const {
  if (parts_)
    return decode_image(std::as_bytes(std::span((*parts_)[index])), limits_.picture,
                        fmt::format("{}, frame {}", path_.string(), index + 1));
  const std::filesystem::path& file = files_[index];
  Image frame = decode_image(MappedFile::open(file, limits_.picture.max_file_bytes)->bytes(), limits_.picture,
                             file.string());
  if (frame.width_px != width_px_ || frame.height_px != height_px_)  // changed since it was opened
    fail(ErrorCode::kInvalidFile, "{}: {}x{} pixels, expected {}x{}", file.string(), frame.width_px,
         frame.height_px, width_px_, height_px_);
  return frame;
}

}  // namespace triptych
