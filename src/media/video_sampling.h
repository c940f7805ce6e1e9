// Which frames of a video a model sees. Follows sample_frames of transformers 5.24,
// video_processing_qwen2_vl.py: as many frames as the wanted rate gives, between a least and a largest
// number, rounded down to whole temporal patches, spread evenly over the video. video_processing_qwen3_vl.py
// does not round down, and spreads them from the first frame to the last. Frames that are shown for different
// times are chosen by the clock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace triptych {

/// A model's wishes; the defaults are those of Qwen2-VL.
struct VideoSampling {
  double frames_per_s = 2.0;
  int min_frames = 4;  // of a video that has as many
  int max_frames = 768;
  int frame_multiple = 2;   // frames of a temporal patch
  bool to_the_end = false;  // any number of frames, the last of the video among them (Qwen3-VL)
};

struct SampledFrames {
  std::vector<int> indices;     // ascending; may repeat a frame that is shown for long
  double frames_per_s = 0;      // of the chosen frames, on average over the video
  std::vector<double> times_s;  // when each begins to be shown
};

/// Of n_frames (>= 1) that follow each other at source_frames_per_s. A video shorter than frame_multiple is
/// taken whole. Throws Error(kInvalidArgument) for a rate that is not positive and finite or limits below 1.
SampledFrames sample_frames(int n_frames, double source_frames_per_s, const VideoSampling& sampling);

/// Of frames shown for durations_ms (each >= 1), one after another: at even distances in time, the frame
/// shown then; to the end: the frame that begins nearest.
SampledFrames sample_frames(std::span<const int> durations_ms, const VideoSampling& sampling);

/// Durations as browsers play them: 10 ms and less (most often 0, "not stated") count as 100 ms.
std::vector<int> played_durations_ms(std::span<const int> stated_ms);

}  // namespace triptych
