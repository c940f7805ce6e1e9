// Arithmetic on single pixels, as Pillow does it, so that results agree to the bit.
#pragma once

#include <cstdint>

#include "media/image.h"

namespace triptych::codec {

/// round(a * b / 255).
inline std::uint8_t multiply_255(unsigned a, unsigned b) noexcept {
  const unsigned product = a * b + 128;
  return static_cast<std::uint8_t>((product + (product >> 8)) >> 8);
}

/// A value with alpha over an opaque background (Pillow's alpha_composite, with its 7 extra bits).
inline std::uint8_t over(unsigned value, unsigned alpha, unsigned background) noexcept {
  const unsigned sum = (value * alpha + background * (255 - alpha) + 128) << 7;
  return static_cast<std::uint8_t>(((sum >> 8) + sum) >> 15);
}

inline void put_rgb(std::uint8_t* to, unsigned r, unsigned g, unsigned b) noexcept {
  to[0] = static_cast<std::uint8_t>(r);
  to[1] = static_cast<std::uint8_t>(g);
  to[2] = static_cast<std::uint8_t>(b);
}

inline void put_rgba(std::uint8_t* to, const std::uint8_t* rgba, Rgb8 background) noexcept {
  to[0] = over(rgba[0], rgba[3], background.r);
  to[1] = over(rgba[1], rgba[3], background.g);
  to[2] = over(rgba[2], rgba[3], background.b);
}

/// Ink amounts, 255 = full ink.
inline void put_cmyk(std::uint8_t* to, unsigned c, unsigned m, unsigned y, unsigned k) noexcept {
  const unsigned light = 255 - k;
  to[0] = static_cast<std::uint8_t>(light - multiply_255(c, light));
  to[1] = static_cast<std::uint8_t>(light - multiply_255(m, light));
  to[2] = static_cast<std::uint8_t>(light - multiply_255(y, light));
}

/// 16-bit grey to 8 bits: round(value / 257).
inline std::uint8_t grey16_to_8(unsigned value) noexcept {
  return static_cast<std::uint8_t>((value + 128) / 257);
}

}  // namespace triptych::codec
