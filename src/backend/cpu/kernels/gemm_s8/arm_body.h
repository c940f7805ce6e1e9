// Tiles of gemm_s8.h with signed weights: a panel's bytes less 128. Included by arm_neon.cc and
// arm_dotprod.cc.
#pragma once

#include "backend/cpu/kernels/gemm_s8/arm_quantize.h"
#include "backend/cpu/kernels/simd/dot8_arm.h"
#include "backend/cpu/kernels/simd/row_count.h"

namespace triptych::kernels {
namespace {

inline int8x16_t weights_at(const uint8_t* panel) {
  return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(panel), vdupq_n_u8(128)));
}

// kFours * 4 columns of kRows rows: at most 24 registers of sums.
template <int kRows>
void columns(const S8TileArgs& t, int first) {
  constexpr int kFours = 4 / kSumsOfFour;
  int32x4_t sums[kRows][kFours][kSumsOfFour];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kFours; ++c)
#pragma GCC unroll 2
      for (int s = 0; s < kSumsOfFour; ++s) sums[r][c][s] = vdupq_n_s32(0);
  const uint8_t* w = t.panel + 4 * first;
  const int8_t* q = t.q;
  ptrdiff_t i = 0;
  for (; i + 2 <= t.quads; i += 2, w += 2 * kS8PanelWidth * 4, q += 8)
#pragma GCC unroll 4
    for (int c = 0; c < kFours; ++c) {
      const int8x16_t a = weights_at(w + 16 * c);
      const int8x16_t b = weights_at(w + kS8PanelWidth * 4 + 16 * c);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) dot8(sums[r][c], a, b, q + r * t.q_stride);
    }
  if (i < t.quads)
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      int8_t last[8] = {};
      memcpy(last, q + r * t.q_stride, 4);
#pragma GCC unroll 4
      for (int c = 0; c < kFours; ++c) dot8(sums[r][c], weights_at(w + 16 * c), vdupq_n_s8(0), last);
    }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kFours; ++c) store_four(t, r, first + 4 * c, sum_of_four(sums[r][c]));
}

void tile(const S8TileArgs& t) {
  with_row_count<6>(t.n_rows, [&](auto n) {
    for (int c = 0; c < kS8PanelWidth; c += 16 / kSumsOfFour) columns<n.value>(t, c);
  });
}

}  // namespace
}  // namespace triptych::kernels
