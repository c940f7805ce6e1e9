// SDOT takes signed bytes on both sides: weights less 128, and 128 times the values' sums puts that right.
// Sums may wrap on the way, and are exact in the end (attention_s8.h).
#include "backend/cpu/kernels/simd/vec_neon.h"
//
#include "backend/cpu/kernels/attention_s8/attention_s8.h"
#include "backend/cpu/kernels/simd/math.h"
#include "backend/cpu/kernels/simd/row_count.h"

namespace triptych::kernels {
namespace {

void pack_keys(const S8PackKeysArgs& t) {
  const int n_quads = (t.head_dim + 3) / 4;
  const int n_whole = t.head_dim / 4;
  memset(t.panel, 128, static_cast<size_t>(n_quads) * 256);
  for (int j = 0; j < t.n_keys; ++j) {
    const auto* row = static_cast<const uint8_t*>(t.rows[j]);
    for (int i = 0; i < n_quads; ++i) {
      uint32_t four = 0;
      memcpy(&four, row + 4 * i, i < n_whole ? 4 : static_cast<size_t>(t.head_dim - 4 * i));
      four ^= 0x80808080U;
      memcpy(t.panel + i * 256 + 4 * j, &four, sizeof four);
    }
  }
}

// Sixteen bytes, of which n (0 or less: none) are read; zeros behind them.
TRIPTYCH_INLINE int8x16_t load_bytes(const void* from, int n) {
  if (n >= 16) return vld1q_s8(static_cast<const int8_t*>(from));
  int8_t part[16] = {};
  if (n > 0) memcpy(part, from, static_cast<size_t>(n));
  return vld1q_s8(part);
}

void pack_values(const S8PackValuesArgs& t) {
  for (int j = 0; j < t.n_keys; j += 4)
    for (int c = 0; c < 64; c += 16) {
      const int column = t.column + c;
      int8x16x4_t rows;
      TRIPTYCH_UNROLL
      for (int i = 0; i < 4; ++i)
        rows.val[i] = j + i < t.n_keys && column < t.head_dim
                          ? load_bytes(static_cast<const char*>(t.rows[j + i]) + column, t.head_dim - column)
                          : vdupq_n_s8(0);
      vst4q_s8(t.panel + j * 64 + c * 4, rows);
    }
}

TRIPTYCH_INLINE Mask lanes_before(int n) {
  const uint32x4_t lanes = {0, 1, 2, 3};
  const uint32x4_t limit = vdupq_n_u32(static_cast<uint32_t>(n));
  return {vcltq_u32(lanes, limit), vcltq_u32(vaddq_u32(lanes, vdupq_n_u32(4)), limit)};
}

TRIPTYCH_INLINE Vf exp2_below(Vf x) { return vexp2_lean(vmax(vset(-126.0F), x)); }

// Codes of eight weights: to nearest even, at most 65535; NaN becomes 0.
TRIPTYCH_INLINE uint16x8_t codes16(const float* weights, Vf factor) {
  const Vf v = vmul(vload(weights), factor);
  return vcombine_u16(vqmovn_u32(vcvtnq_u32_f32(v.low)), vqmovn_u32(vcvtnq_u32_f32(v.high)));
}

TRIPTYCH_INLINE void store_codes16(const float* weights, Vf factor, int n, uint8_t* high, uint8_t* low) {
  for (int j = 0; j < n; j += 16) {
    const uint16x8_t a = codes16(weights + j, factor);
    const uint16x8_t b = codes16(weights + j + 8, factor);
    vst1q_u8(high + j, vcombine_u8(vshrn_n_u16(a, 8), vshrn_n_u16(b, 8)));
    vst1q_u8(low + j, vcombine_u8(vmovn_u16(a), vmovn_u16(b)));
  }
}

TRIPTYCH_INLINE void store_codes8(const float* weights, Vf factor, int n, uint8_t* high) {
  for (int j = 0; j < n; j += 16)
    vst1q_u8(high + j, vcombine_u8(vqmovn_u16(codes16(weights + j, factor)),
                                   vqmovn_u16(codes16(weights + j + 8, factor))));
}

}  // namespace
}  // namespace triptych::kernels

#include "backend/cpu/kernels/attention_s8/attention_s8_body.h"

namespace triptych::kernels {
namespace {

// Sixteen columns of kRows rows: at most 24 registers of sums.
template <int kRows>
TRIPTYCH_INLINE void add_products(int32x4_t (&sums)[kRows][4], const int8_t* panel, const uint8_t* weights,
                                  ptrdiff_t stride, ptrdiff_t quads) {
  for (ptrdiff_t i = 0; i < quads; ++i, panel += 256, weights += 4) {
    int8x16_t v[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) v[c] = vld1q_s8(panel + 16 * c);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      uint32_t four;
      memcpy(&four, weights + r * stride, sizeof four);
      const int8x16_t w = vreinterpretq_s8_u32(vdupq_n_u32(four ^ 0x80808080U));
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) sums[r][c] = vdotq_s32(sums[r][c], v[c], w);
    }
  }
}

template <int kRows>
void columns(const S8AccumulateArgs& t, int first) {
  const int8_t* panel = t.panel + 4 * first;
  int32x4_t shift[4];  // 128 times the values' sums
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    int32x4_t sum = vdupq_n_s32(0);
    for (ptrdiff_t i = 0; i < t.quads; ++i)
      sum = vdotq_s32(sum, vld1q_s8(panel + 256 * i + 16 * c), vdupq_n_s8(1));
    shift[c] = vshlq_n_s32(sum, 7);
  }
  int32x4_t sums[kRows][4];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sums[r][c] = shift[c];
  add_products<kRows>(sums, panel, t.high, t.stride, t.quads);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      sums[r][c] = vshlq_n_s32(sums[r][c], 8);
      if (t.low != nullptr) sums[r][c] = vaddq_s32(sums[r][c], shift[c]);
    }
  if (t.low != nullptr) add_products<kRows>(sums, panel, t.low, t.stride, t.quads);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      float* y = t.y + r * t.y_stride + first + 4 * c;
      const float32x4_t added = vmulq_n_f32(vcvtq_f32_s32(sums[r][c]), t.weight_scale[r]);
      vst1q_f32(y, vfmaq_n_f32(added, vld1q_f32(y), t.rescale[r]));
    }
}

void accumulate(const S8AccumulateArgs& t) {
  with_row_count<6>(t.n_rows, [&](auto n) {
    for (int c = 0; c < 64; c += 16) columns<n.value>(t, c);
  });
}

}  // namespace

extern const AttentionS8Kernels kAttentionS8Dotprod = {"dotprod", pack_keys, pack_values, soften, accumulate};

}  // namespace triptych::kernels
