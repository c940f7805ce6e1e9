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
  const int most = std::min(s.max_frames, n_total) / s.frame_multiple * s.frame_multiple;
  if (most == 0)
    return std::min(s.max_frames, n_total);  // less than one temporal patch: the last is repeated
  const double n = std::min(std::max(wanted, static_cast<double>(s.min_frames)), static_cast<double>(most));
  const int whole = static_cast<int>(n) / s.frame_multiple * s.frame_multiple;
  return whole > 0 ? whole : s.frame_multiple;
}

}  // namespace

SampledFrames sample_frames(int n_frames, double source_frames_per_s, const VideoSampling& s) {
  TRIPTYCH_CHECK(n_frames > 0, "[sample_frames] {} frames", n_frames);
  check_rate(source_frames_per_s, "the video");
  check_rate(s.frames_per_s, "frames to take");
  const int n = count_frames(n_frames, n_frames / source_frames_per_s * s.frames_per_s, s);
  SampledFrames out;
  for (std::int64_t i = 0; i < n; ++i) out.indices.push_back(static_cast<int>(i * n_frames / n));
  out.frames_per_s = static_cast<double>(n) / n_frames * source_frames_per_s;
  return out;
}

SampledFrames sample_frames(std::span<const int> durations_ms, const VideoSampling& s) {
  const auto n_frames = static_cast<int>(durations_ms.size());
  TRIPTYCH_CHECK(n_frames > 0, "[sample_frames] no frames");
  check_rate(s.frames_per_s, "frames to take");
  std::int64_t total_ms = 0;
  for (const int ms : durations_ms) {
    TRIPTYCH_CHECK(ms > 0, "[sample_frames] a frame of {} ms", ms);
    total_ms += ms;
  }
  const double seconds = static_cast<double>(total_ms) / 1000;
  const int n = count_frames(n_frames, seconds * s.frames_per_s, s);
  SampledFrames out;
  std::size_t frame = 0;
  std::int64_t frame_ends_ms = durations_ms[0];
  for (std::int64_t i = 0; i < n; ++i) {
    // The frame shown at the time i * total / n.
    while (frame_ends_ms * n <= i * total_ms) frame_ends_ms += durations_ms[++frame];
    out.indices.push_back(static_cast<int>(frame));
  }
  out.frames_per_s = static_cast<double>(n) / seconds;
  return out;
}

std::vector<int> played_durations_ms(std::span<const int> stated_ms) {
  std::vector<int> out;
  for (const int ms : stated_ms) out.push_back(ms > 10 ? ms : 100);
  return out;
}

}  // namespace triptych
