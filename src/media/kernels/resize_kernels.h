// Contract of the two passes of a resize. Single-threaded, no allocation, no failure; the caller checks
// everything.
//
// A weight K is a 22-bit fixed-point number. A pass computes, for each output byte,
//     clip8((2^21 + sum_k px[k] * K[k]) >> 22)        (arithmetic shift, sums modulo 2^32)
// The vector versions of x86 split K = high * 2^12 + low, 0 <= low < 2^12, so that both parts fit signed 16
// bits and two taps are one multiply-add of pairs; sums modulo 2^32 make that exact. Only C headers here: see
// docs/architecture.md.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace triptych::resize_kernels {

inline constexpr int kPrecisionBits = 22;
inline constexpr int kSplitBits = 12;
inline constexpr int kGroup = 4;           // taps are padded with zero weights to a multiple of this
inline constexpr int kMaxRows = 8;         // rows one horizontal call takes
inline constexpr int kReadSlackBytes = 4;  // a horizontal call reads this far past its last padded tap

/// The weights of one pass. n_taps is a multiple of kGroup and the same for each output.
struct Taps {
  const int32_t* first;    // [n_out] first source pixel (or row)
  const int32_t* count;    // [n_out] taps that may be other than zero
  const int32_t* weights;  // [n_out][n_taps]
  const int16_t* packed;   // [n_out][n_taps / 4][8]: the low parts of four weights, then their high parts
  int n_out;
  int n_taps;
};

struct HorizontalArgs {
  Taps taps;
  const uint8_t* const* src;  // [n_rows] RGB rows; row r is readable for
                              // (max over outputs of first) * 3 + n_taps * 3 + kReadSlackBytes bytes
  uint8_t* const* dst;        // [n_rows] rows of n_out * 3 bytes
  int n_rows;                 // 1..kMaxRows
};

struct VerticalArgs {
  Taps taps;
  const uint8_t* src;    // row 0 of the source
  ptrdiff_t src_stride;  // bytes
  int out_row;           // which output row to make
  uint8_t* dst;          // n_bytes
  int n_bytes;           // bytes of a row, any number
};

using HorizontalFn = void (*)(const HorizontalArgs&) noexcept;
using VerticalFn = void (*)(const VerticalArgs&) noexcept;

void horizontal_scalar(const HorizontalArgs& args) noexcept;  // the oracle: uses `weights`
void vertical_scalar(const VerticalArgs& args) noexcept;
void horizontal_avx2(const HorizontalArgs& args) noexcept;  // use `packed`
void vertical_avx2(const VerticalArgs& args) noexcept;
void horizontal_avx512(const HorizontalArgs& args) noexcept;  // F, BW, VL
void vertical_avx512(const VerticalArgs& args) noexcept;
void horizontal_neon(const HorizontalArgs& args) noexcept;  // use `weights`
void vertical_neon(const VerticalArgs& args) noexcept;

}  // namespace triptych::resize_kernels
