// USMMLA multiplies two columns of eight unsigned weights by two rows of eight signed bytes: four sums. Six
// rows by 16 columns take 24 registers of sums.
#include "backend/cpu/kernels/gemm_s8/arm_quantize.h"
#include "backend/cpu/kernels/gemm_s8/int8_sums.h"
#include "backend/cpu/kernels/simd/row_count.h"

namespace triptych::kernels {
namespace {

constexpr int kFours = 4;

// Sums of columns c, c + 1 (and c + 2, c + 3) of four: the first row's and the second row's in turn.
struct FourSums {
  int32x4_t low, high;
};

// Two quads of a column lie kS8PanelWidth * 4 bytes apart; zipped, they are eight neighbours along k. `next`
// may be zeros.
template <int kPairs>
inline __attribute__((always_inline)) void step(FourSums (&sums)[kPairs][kFours], int c, uint8x16_t quad,
                                                uint8x16_t next, const int8x16_t (&q)[kPairs]) {
  const uint32x4_t a = vreinterpretq_u32_u8(quad);
  const uint32x4_t b = vreinterpretq_u32_u8(next);
  const uint8x16_t low = vreinterpretq_u8_u32(vzip1q_u32(a, b));
  const uint8x16_t high = vreinterpretq_u8_u32(vzip2q_u32(a, b));
#pragma GCC unroll 3
  for (int p = 0; p < kPairs; ++p) {
    sums[p][c].low = vusmmlaq_s32(sums[p][c].low, low, q[p]);
    sums[p][c].high = vusmmlaq_s32(sums[p][c].high, high, q[p]);
  }
}

template <int kRows>
void columns(const S8TileArgs& t, int first) {
  constexpr int kPairs = (kRows + 1) / 2;
  FourSums sums[kPairs][kFours];
#pragma GCC unroll 3
  for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 4
    for (int c = 0; c < kFours; ++c) sums[p][c] = {vdupq_n_s32(0), vdupq_n_s32(0)};
  const uint8_t* w = t.panel + 4 * first;
  const int8_t* q = t.q;
  int8x16_t pairs[kPairs];
  ptrdiff_t i = 0;
  for (; i + 2 <= t.quads; i += 2, w += 2 * kS8PanelWidth * 4, q += 8) {
#pragma GCC unroll 3
    for (int p = 0; p < kPairs; ++p) {
      const int second = 2 * p + 1 < kRows ? 2 * p + 1 : 2 * p;  // an odd last row is taken twice
      pairs[p] = vcombine_s8(vld1_s8(q + 2 * p * t.q_stride), vld1_s8(q + second * t.q_stride));
    }
#pragma GCC unroll 4
    for (int c = 0; c < kFours; ++c)
      step(sums, c, vld1q_u8(w + 16 * c), vld1q_u8(w + kS8PanelWidth * 4 + 16 * c), pairs);
  }
  if (i < t.quads) {
    for (int p = 0; p < kPairs; ++p) {
      int8_t last[16] = {};
      memcpy(last, q + 2 * p * t.q_stride, 4);
      if (2 * p + 1 < kRows) memcpy(last + 8, q + (2 * p + 1) * t.q_stride, 4);
      pairs[p] = vld1q_s8(last);
    }
    for (int c = 0; c < kFours; ++c) step(sums, c, vld1q_u8(w + 16 * c), vdupq_n_u8(0), pairs);
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kFours; ++c) {
      const FourSums& s = sums[r / 2][c];
      const int32x4_t sum = r % 2 == 0 ? vuzp1q_s32(s.low, s.high) : vuzp2q_s32(s.low, s.high);
      store_four(t, r, first + 4 * c, vsubq_s32(sum, vdupq_n_s32(128 * t.row_sum[r])));
    }
}

void tile(const S8TileArgs& t) {
  with_row_count<6>(t.n_rows, [&](auto n) {
    for (int c = 0; c < kS8PanelWidth; c += 4 * kFours) columns<n.value>(t, c);
  });
}

}  // namespace

extern const GemmS8Kernels kGemmS8I8mm = {"i8mm", quantize, tile, int8_sums};

}  // namespace triptych::kernels
