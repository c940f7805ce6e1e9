// Conversions between float and the narrow float formats, one value at a time: bf16, IEEE half (f16), and the
// OCP 8-bit floats E4M3 ("FN": no infinity) and E5M2. To a narrow type rounding is to nearest, ties to even;
// subnormals are exact; NaN stays NaN. Sources: IEEE 754-2019; "OCP 8-bit Floating Point Specification
// (OFP8)" rev 1.0, table 1. The same bits on every machine in the default rounding mode. Not for files
// compiled for one instruction set.
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

// Both directions compute every case and then choose, without branches, so that loops over them become vector
// code.

/// A narrow float: `E` exponent bits, `M` mantissa bits, IEEE rules when `Ieee`; else E4M3FN's (all-ones is
/// the one NaN, no infinity). The sign is in bit E + M.
template <int E, int M, bool Ieee>
constexpr float narrow_to_f32(std::uint32_t bits) noexcept {
  constexpr std::int32_t kMantissaMask = (1 << M) - 1;
  constexpr std::int32_t kMagnitudeMask = (1 << (E + M)) - 1;
  constexpr std::int32_t kExponentMax = (1 << E) - 1;
  constexpr int kBias = (1 << (E - 1)) - 1;
  // From here on all magnitudes are infinite or NaN.
  constexpr std::int32_t kFirstSpecial = Ieee ? kExponentMax << M : kMagnitudeMask;
  constexpr float kSubnormalUnit =
      std::bit_cast<float>((127 + 1 - kBias - M) << 23);  // a normal float: products are exact
  const std::int32_t magnitude = static_cast<std::int32_t>(bits) & kMagnitudeMask;
  const std::int32_t normal = (magnitude << (23 - M)) + ((127 - kBias) << 23);
  const std::int32_t subnormal = std::bit_cast<std::int32_t>(static_cast<float>(magnitude) * kSubnormalUnit);
  const std::int32_t mantissa = magnitude & kMantissaMask;
  const std::int32_t quiet = !Ieee || mantissa != 0 ? 0x00400000 : 0;
  const std::int32_t special = 0x7f800000 | (mantissa << (23 - M)) | quiet;
  std::int32_t out = magnitude <= kMantissaMask ? subnormal : normal;
  out = magnitude >= kFirstSpecial ? special : out;
  const std::uint32_t sign = (bits >> (E + M)) << 31;
  return std::bit_cast<float>(static_cast<std::uint32_t>(out) | sign);
}

template <int E, int M, bool Ieee>
constexpr std::uint32_t f32_to_narrow(float value) noexcept {
  constexpr int kBias = (1 << (E - 1)) - 1;
  constexpr std::int32_t kInfinity = ((1 << E) - 1) << M;  // IEEE only
  constexpr std::int32_t kNan = Ieee ? (kInfinity | (1 << (M - 1))) : (1 << (E + M)) - 1;
  constexpr std::int32_t kTooLarge = Ieee ? kInfinity : kNan;  // also what takes their place
  constexpr std::int32_t kFirstNormal = (127 - kBias + 1) << 23;
  // One unit of this float's last place is the smallest narrow subnormal: adding it rounds to a multiple of
  // that.
  constexpr std::int32_t kAligner = (127 + 1 - kBias - M + 23) << 23;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::int32_t magnitude = static_cast<std::int32_t>(bits & 0x7fffffffu);
  // To nearest: half of the last place is added, less one bit when the kept part is even; a carry moves into
  // the exponent.
  const std::int32_t is_odd = (magnitude >> (23 - M)) & 1;
  const std::int32_t normal =
      (magnitude - ((127 - kBias) << 23) + ((1 << (22 - M)) - 1) + is_odd) >> (23 - M);
  const std::int32_t subnormal =
      std::bit_cast<std::int32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAligner)) -
      kAligner;
  const std::int32_t payload = Ieee ? (magnitude >> (23 - M)) & ((1 << M) - 1) : 0;
  std::int32_t out = magnitude < kFirstNormal ? subnormal : normal;
  out = out >= kTooLarge ? kTooLarge : out;
  out = magnitude > 0x7f800000 ? kNan | payload : out;
  return static_cast<std::uint32_t>(out) | ((bits >> 31) << (E + M));
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
