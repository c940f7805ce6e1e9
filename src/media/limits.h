// What an image from outside may cost. Every limit is checked from the header, before memory for pixels is
// taken.
#pragma once

#include <cstdint>

namespace triptych {

struct DecodeLimits {
  std::uint64_t max_file_bytes = 64ULL << 20;  // size of the encoded image
  std::uint64_t max_pixels = 64'000'000;       // width x height of one image (or of an animation's canvas)
  int max_side_px = 65'535;                    // width and height, each
  int max_frames = 4'096;                      // of an animation
  std::uint64_t max_animation_pixels = 256'000'000;  // all frames of an animation that are kept
  std::uint64_t max_drawn_pixels = 4'000'000'000;    // all frames drawn to get those that are kept
};

}  // namespace triptych
