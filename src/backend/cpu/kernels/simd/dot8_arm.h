// Sums of eight products of bytes for each of four columns, by SDOT where the file is compiled for it
// (*_dotprod.cc), else by widening multiplications (*_neon.cc).
//
// Without SDOT the sum of two products is kept in 16 bits: at most 2 * 128 * 127, below 2^15, for q in
// -127..127.
#pragma once

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace triptych::kernels {
namespace {

inline int32_t load4(const int8_t* at) {
  int32_t bits;
  memcpy(&bits, at, sizeof bits);
  return bits;
}

#if defined(__ARM_FEATURE_DOTPROD)

constexpr int kSumsOfFour = 1;  // registers that hold the sums of four columns

/// sums[c] += sum over j of first[4 c + j] q[j] + second[4 c + j] q[4 + j].
inline __attribute__((always_inline)) void dot8(int32x4_t* sums, int8x16_t first, int8x16_t second,
                                                const int8_t* q) {
  const int8x8_t both = vld1_s8(q);
  *sums = vdotq_lane_s32(*sums, first, both, 0);
  *sums = vdotq_lane_s32(*sums, second, both, 1);
}
inline int32x4_t sum_of_four(const int32x4_t* sums) { return *sums; }

#else

constexpr int kSumsOfFour = 2;

inline __attribute__((always_inline)) void dot8(int32x4_t* sums, int8x16_t first, int8x16_t second,
                                                const int8_t* q) {
  const int8x16_t a = vreinterpretq_s8_s32(vdupq_n_s32(load4(q)));
  const int8x16_t b = vreinterpretq_s8_s32(vdupq_n_s32(load4(q + 4)));
  int16x8_t low = vmull_s8(vget_low_s8(first), vget_low_s8(a));
  int16x8_t high = vmull_high_s8(first, a);
  low = vmlal_s8(low, vget_low_s8(second), vget_low_s8(b));
  high = vmlal_high_s8(high, second, b);
  sums[0] = vpadalq_s16(sums[0], low);
  sums[1] = vpadalq_s16(sums[1], high);
}
inline int32x4_t sum_of_four(const int32x4_t* sums) { return vpaddq_s32(sums[0], sums[1]); }

#endif

}  // namespace
}  // namespace triptych::kernels
