// The quantisation of gemm_s8.h and the end of a tile, for ARM. Included by arm_*.cc.
#pragma once

#include <arm_neon.h>
#include <string.h>

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/gemm_s8/int8_sums.h"

namespace triptych::kernels {
namespace {

// Magnitudes compare as integers, and infinity and NaN are the largest.
inline uint32_t largest_magnitude(const S8QuantizeArgs& t) {
  const uint32x4_t mask = vdupq_n_u32(0x7fffffffU);
  uint32x4_t largest = vdupq_n_u32(0);
  ptrdiff_t i = 0;
  for (; i + 4 <= t.k; i += 4)
    largest = vmaxq_u32(largest, vandq_u32(mask, vreinterpretq_u32_f32(vld1q_f32(t.x + i))));
  uint32_t out = vmaxvq_u32(largest);
  for (; i < t.k; ++i) {
    uint32_t bits;
    memcpy(&bits, t.x + i, sizeof bits);
    bits &= 0x7fffffffU;
    out = bits > out ? bits : out;
  }
  return out;
}

inline void quantize(const S8QuantizeArgs& t) {
  const uint32_t bits = largest_magnitude(t);
  const ptrdiff_t padded = 4 * s8_quads(t.k);
  float largest;
  memcpy(&largest, &bits, sizeof largest);
  *t.sum = 0;
  *t.scale = bits < 0x7f800000U ? largest / 127.0F : __builtin_nanf("");
  // Below the smallest normal number 127 / largest would be infinite.
  if (bits >= 0x7f800000U || largest < 1e-36F) {
    memset(t.q, 0, static_cast<size_t>(padded));
    if (t.square_sum != nullptr) *t.square_sum = 0;
    return;
  }
  const float32x4_t factor = vdupq_n_f32(127.0F / largest);
  int32x4_t total = vdupq_n_s32(0);
  for (ptrdiff_t i = 0; i < padded; i += 4) {
    float x[4] = {};
    const ptrdiff_t left = t.k - i;
    memcpy(x, t.x + i, left >= 4 ? sizeof x : static_cast<size_t>(left) * sizeof(float));
    int32x4_t q = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x), factor));
    q = vminq_s32(vmaxq_s32(q, vdupq_n_s32(-127)), vdupq_n_s32(127));
    total = vaddq_s32(total, q);
    const int16x4_t words = vmovn_s32(q);
    const int32_t four = vget_lane_s32(vreinterpret_s32_s8(vmovn_s16(vcombine_s16(words, words))), 0);
    memcpy(t.q + i, &four, sizeof four);
  }
  *t.sum = vaddvq_s32(total);
  if (t.square_sum != nullptr) *t.square_sum = square_sum(t.q, t.k);
}

/// Four columns of a row from their sums.
inline void store_four(const S8TileArgs& t, int row, int column, int32x4_t sum) {
  const float32x4_t scale = vmulq_f32(vdupq_n_f32(t.row_scale[row]), vld1q_f32(t.column_scale + column));
  vst1q_f32(t.y + row * t.y_stride + column, vmulq_f32(vcvtq_f32_s32(sum), scale));
}

}  // namespace
}  // namespace triptych::kernels
