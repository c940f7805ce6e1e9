// Conversions between float and the narrow float formats, one value at a time: bf16, IEEE half (f16), and the
// OCP 8-bit floats E4M3 ("FN": no infinity) and E5M2. To a narrow type rounding is to nearest, ties to even;
// subnormals are exact; NaN stays NaN. Sources: IEEE 754-2019; "OCP 8-bit Floating Point Specification
// (OFP8)" rev 1.0, table 1. Plain integer arithmetic: the same bits on every machine. Not for files compiled
// for one instruction set.
#pragma once

#include <bit>
#include <cstdint>

namespace triptych {

constexpr float bf16_to_f32(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Overflow gives infinity; a NaN keeps its sign and upper payload and becomes quiet.
constexpr std::uint16_t f32_to_bf16(float value) noexcept {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x0040u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

namespace detail {

/// A narrow float: `E` exponent bits, `M` mantissa bits, IEEE rules when `Ieee`; else E4M3FN's (all-ones is
/// the one NaN, no infinity). The result has the sign in bit E + M.
template <int E, int M, bool Ieee>
constexpr float narrow_to_f32(std::uint32_t bits) noexcept {
  constexpr std::uint32_t kMantissaMask = (1u << M) - 1u;
  constexpr std::uint32_t kExponentMax = (1u << E) - 1u;
  constexpr int kBias = (1 << (E - 1)) - 1;
  const std::uint32_t sign = ((bits >> (E + M)) & 1u) << 31;
  const std::uint32_t exponent = (bits >> M) & kExponentMax;
  const std::uint32_t mantissa = bits & kMantissaMask;
  if (Ieee ? exponent == kExponentMax : (exponent == kExponentMax && mantissa == kMantissaMask)) {
    const bool is_nan = !Ieee || mantissa != 0;
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << (23 - M)) | (is_nan ? 0x00400000u : 0u));
  }
  if (exponent == 0) {
    // mantissa * 2^(1 - bias - M): exact, since the scale is a normal float.
    const float scale = std::bit_cast<float>(static_cast<std::uint32_t>(127 + 1 - kBias - M) << 23);
    const float magnitude = static_cast<float>(mantissa) * scale;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + static_cast<std::uint32_t>(127 - kBias)) << 23) |
                              (mantissa << (23 - M)));
}

template <int E, int M, bool Ieee>
constexpr std::uint32_t f32_to_narrow(float value) noexcept {
  constexpr std::uint32_t kExponentMax = (1u << E) - 1u;
  constexpr int kBias = (1 << (E - 1)) - 1;
  constexpr std::uint32_t kInfinity = kExponentMax << M;  // IEEE only
  constexpr std::uint32_t kNan = Ieee ? (kInfinity | (1u << (M - 1))) : ((1u << (E + M)) - 1u);
  constexpr std::uint32_t kOverflow = Ieee ? kInfinity : kNan;
  const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (u >> 31) << (E + M);
  const std::uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    if constexpr (Ieee) return sign | kNan | ((magnitude >> (23 - M)) & ((1u << M) - 1u));
    return sign | kNan;
  }
  if (magnitude == 0x7f800000u) return sign | kOverflow;
  const int exponent = static_cast<int>(magnitude >> 23) - 127 + kBias;  // biased, narrow
  if (exponent > static_cast<int>(kExponentMax)) return sign | kOverflow;
  // Value as an integer mantissa shifted right by `shift`, rounded to nearest even. A carry moves into the
  // exponent.
  const std::uint32_t mantissa = (magnitude & 0x007fffffu) | 0x00800000u;
  int shift = 23 - M;
  std::uint32_t base = 0;
  if (exponent >= 1) {
    base = static_cast<std::uint32_t>(exponent - 1)
           << M;  // the implicit one of `mantissa` adds the missing 1
  } else {
    shift += 1 - exponent;
    if (shift > 24) return sign;  // below half of the smallest subnormal (a float subnormal ends here too)
  }
  const std::uint32_t truncated = mantissa >> shift;
  const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t rounded =
      base + truncated + ((rest > half || (rest == half && (truncated & 1u) != 0)) ? 1u : 0u);
  constexpr std::uint32_t kFirstTooLarge = Ieee ? kInfinity : kNan;
  return sign | (rounded >= kFirstTooLarge ? kOverflow : rounded);
}

}  // namespace detail

constexpr float f16_to_f32(std::uint16_t bits) noexcept { return detail::narrow_to_f32<5, 10, true>(bits); }
/// Overflow (from 65520 on) gives infinity.
constexpr std::uint16_t f32_to_f16(float value) noexcept {
  return static_cast<std::uint16_t>(detail::f32_to_narrow<5, 10, true>(value));
}

constexpr float f8e4m3_to_f32(std::uint8_t bits) noexcept { return detail::narrow_to_f32<4, 3, false>(bits); }
/// What rounds above 448 gives NaN, as in PyTorch; clamp first to saturate.
constexpr std::uint8_t f32_to_f8e4m3(float value) noexcept {
  return static_cast<std::uint8_t>(detail::f32_to_narrow<4, 3, false>(value));
}

constexpr float f8e5m2_to_f32(std::uint8_t bits) noexcept { return detail::narrow_to_f32<5, 2, true>(bits); }
/// Overflow gives infinity.
constexpr std::uint8_t f32_to_f8e5m2(float value) noexcept {
  return static_cast<std::uint8_t>(detail::f32_to_narrow<5, 2, true>(value));
}

}  // namespace triptych
