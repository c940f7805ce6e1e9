// The one form in which pictures travel through the program: 8-bit RGB, rows top to bottom, no padding
// between rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/pool_vector.h"

namespace triptych {

struct Rgb8 {
  std::uint8_t r = 0, g = 0, b = 0;
  friend bool operator==(const Rgb8&, const Rgb8&) = default;
};

inline constexpr Rgb8 kWhite{255, 255, 255};
inline constexpr Rgb8 kBlack{0, 0, 0};

/// rgb holds height_px * width_px * 3 bytes in the order [row][column][R, G, B]. An image without pixels is 0
/// x 0.
struct Image {
  int width_px = 0;
  int height_px = 0;
  PoolVector<std::uint8_t> rgb;

  /// Bytes from one row to the next.
  std::size_t row_bytes() const noexcept { return static_cast<std::size_t>(width_px) * 3; }
  friend bool operator==(const Image&, const Image&) = default;
};

/// One picture of an animation, complete (already laid over what came before).
struct Frame {
  Image image;
  int duration_ms = 0;  // as the file says; 0 where it says nothing
};

}  // namespace triptych
