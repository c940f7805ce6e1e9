#include "media/video_sampling.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace triptych {
namespace {

void check_rate(double frames_per_s, std::string_view what) {
  if (!(std::isfinite(frames_per_s) && frames_per_s > 0))
    fail(ErrorCode::kInvalidArgument, "{}: expected more than 0 frames a second, got {}", what, frames_per_s);
}

// How many of n_total frames; `wanted` is the video's length times the rate. Always at least one.
int count_frames(int n_total, double wanted, const VideoSampling& s) {
  if (s.min_frames < 1 || s.max_frames < 1 || s.frame_multiple < 1)
    fail(ErrorCode::kInvalidArgument, "frames of a video: expected limits of at least 1, got {} to {}",
         s.min_frames, s.max_frames);
  if (s.to_the_end)
    return static_cast<int>(std::min({std::max(std::trunc(wanted), static_cast<double>(s.min_frames)),
                                      static_cast<double>(s.max_frames), static_cast<double>(n_total)}));
  const int most = std::min(s.max_frames, n_total) / s.frame_multiple * s.frame_multiple;
  if (most == 0)
    return std::min(s.max_frames, n_total);  // less than one temporal patch: the last is repeated
  const double n = std::min(std::max(wanted, static_cast<double>(s.min_frames)), static_cast<double>(most));
  const int whole = static_cast<int>(n) / s.frame_multiple * s.frame_multiple;
  return whole > 0 ? whole : s.frame_multiple;
}

// n of n_frames from the first to the last, as numpy.linspace(0, n_frames - 1, n).round() gives them.
std::vector<int> spread_to_the_end(int n_frames, int n) {
  const double step = n > 1 ? static_cast<double>(n_frames - 1) / (n - 1) : 0;
  std::vector<int> out;
  for (int i = 0; i < n; ++i) out.push_back(static_cast<int>(std::nearbyint(i * step)));
  if (n > 1) out.back() = n_frames - 1;
  return out;
}

// The same on the clock: the frames that begin nearest to n times between the beginnings of the first and the
// last; of two as near, the even one.
std::vector<int> nearest_to_the_end(std::span<const std::int64_t> begins_ms, int n) {
  std::vector<int> out;
  std::size_t k = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t parts = std::max(n - 1, 1);  // times are counted in parts of the whole
    const std::int64_t target = i * begins_ms.back();
    while (k + 1 < begins_ms.size() && begins_ms[k + 1] * parts <= target) ++k;
    std::size_t nearest = k;
    if (k + 1 < begins_ms.size()) {
      const std::int64_t before = target - begins_ms[k] * parts;
      const std::int64_t after = begins_ms[k + 1] * parts - target;
      if (after < before || (after == before && k % 2 != 0)) nearest = k + 1;
    }
    out.push_back(static_cast<int>(nearest));
  }
  return out;
}

}  // namespace

SampledFrames sample_frames(int n_frames, double source_frames_per_s, const VideoSampling& s) {
  TRIPTYCH_CHECK(n_frames > 0, "[sample_frames] {} frames", n_frames);
  check_rate(source_frames_per_s, "the video");
  check_rate(s.frames_per_s, "frames to take");
  const int n = count_frames(n_frames, n_frames / source_frames_per_s * s.frames_per_s, s);
  SampledFrames out;
  if (s.to_the_end) {
    out.indices = spread_to_the_end(n_frames, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) out.indices.push_back(static_cast<int>(i * n_frames / n));
  }
  for (const int index : out.indices) out.times_s.push_back(index / source_frames_per_s);
  out.frames_per_s = static_cast<double>(n) / n_frames * source_frames_per_s;
  return out;
}

SampledFrames sample_frames(std::span<const int> durations_ms, const VideoSampling& s) {
  const auto n_frames = static_cast<int>(durations_ms.size());
  TRIPTYCH_CHECK(n_frames > 0, "[sample_frames] no frames");
  check_rate(s.frames_per_s, "frames to take");
  std::int64_t total_ms = 0;
  std::vector<std::int64_t> begins_ms;
  for (const int ms : durations_ms) {
    TRIPTYCH_CHECK(ms > 0, "[sample_frames] a frame of {} ms", ms);
    begins_ms.push_back(total_ms);
    total_ms += ms;
  }
  const double seconds = static_cast<double>(total_ms) / 1000;
  const int n = count_frames(n_frames, seconds * s.frames_per_s, s);
  SampledFrames out;
  if (s.to_the_end) {
    out.indices = nearest_to_the_end(begins_ms, n);
  } else {
    std::size_t frame = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      // The frame shown at the time i * total / n.
      while (frame + 1 < begins_ms.size() && begins_ms[frame + 1] * n <= i * total_ms) ++frame;
      out.indices.push_back(static_cast<int>(frame));
    }
  }
  for (const int index : out.indices)
    out.times_s.push_back(static_cast<double>(begins_ms[static_cast<std::size_t>(index)]) / 1000);
  out.frames_per_s = static_cast<double>(n) / seconds;
  return out;
}

std::vector<int> played_durations_ms(std::span<const int> stated_ms) {
  std::vector<int> out;
  for (const int ms : stated_ms) out.push_back(ms > 10 ? ms : 100);
  return out;
}

}  // namespace triptych
