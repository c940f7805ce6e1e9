// gemm_s4.h for ARM. Included by arm_neon.cc and arm_dotprod.cc.
#pragma once

#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"
#include "backend/cpu/kernels/simd/dot8_arm.h"
#include "backend/cpu/kernels/simd/row_count.h"

namespace triptych::kernels {
namespace {

inline float32x4_t scales_at(const uint8_t* at) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at))); }

// Zero points of four columns; `at` is null without any.
inline int32x4_t zeros_at(const uint8_t* at) {
  if (at == nullptr) return vdupq_n_s32(8);
  const int32_t zeros[4] = {at[0], at[1], at[2], at[3]};
  return vld1q_s32(zeros);
}

// kFours * 4 columns of kRows rows. Sums of a group are in registers, those of all groups in `y`.
template <int kRows, int kFours>
void columns(const S4RowsArgs& t, int first) {
  const S4Layout& layout = t.layout;
  const ptrdiff_t n_groups = layout.n_groups();
  const uint8x16_t nibble = vdupq_n_u8(15);
  float32x4_t y[kRows][kFours];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kFours; ++c) y[r][c] = vdupq_n_f32(0.0F);
  const uint8_t* panel = t.panel;
  const int8_t* q = t.q;
  for (ptrdiff_t g = 0; g < n_groups; ++g) {
    int32x4_t sums[kRows][kFours][kSumsOfFour];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int c = 0; c < kFours; ++c)
#pragma GCC unroll 2
        for (int s = 0; s < kSumsOfFour; ++s) sums[r][c][s] = vdupq_n_s32(0);
    const uint8_t* at = panel + 4 * first;
    const ptrdiff_t n_blocks = layout.blocks(g);
    for (ptrdiff_t b = 0; b < n_blocks; ++b, at += kS4PanelWidth * 4, q += 8)
#pragma GCC unroll 16
      for (int c = 0; c < kFours; ++c) {
        const uint8x16_t codes = vld1q_u8(at + 16 * c);
        const int8x16_t low = vreinterpretq_s8_u8(vandq_u8(codes, nibble));
        const int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(codes, 4));
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) dot8(sums[r][c], low, high, q + r * t.q_stride);
      }
    const uint8_t* tail = panel + n_blocks * kS4PanelWidth * 4;
#pragma GCC unroll 16
    for (int c = 0; c < kFours; ++c) {
      const int column = first + 4 * c;
      const float32x4_t scale = scales_at(tail + 2 * column);
      const int32x4_t zero = zeros_at(layout.asymmetric ? tail + 2 * kS4PanelWidth + column : nullptr);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const int32x4_t sum = vmlsq_n_s32(sum_of_four(sums[r][c]), zero, t.group_sums[r * n_groups + g]);
        y[r][c] = vaddq_f32(y[r][c], vmulq_f32(vcvtq_f32_s32(sum), scale));
      }
    }
    panel = tail + layout.tail_bytes();
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kFours; ++c)
      vst1q_f32(t.y + r * t.y_stride + first + 4 * c, vmulq_f32(y[r][c], vdupq_n_f32(t.row_scale[r])));
}

// As many columns at once as 24 registers of sums hold.
void rows(const S4RowsArgs& t) {
  with_row_count<6>(t.n_rows, [&](auto n) {
    constexpr int kSums = n.value <= 1 ? 16 : n.value <= 3 ? 8 : 4;
    constexpr int kFours = kSums / kSumsOfFour;
    for (int first = 0; first < kS4PanelWidth; first += 4 * kFours) columns<n.value, kFours>(t, first);
  });
}

// Four columns of four elements: bits [shift, shift + 4) of each byte become signed bytes (q - zero) * ratio,
// plus 128.
template <int kShift>
inline uint32x4_t requantize4(uint32x4_t codes, int32x4_t zero, float32x4_t ratio) {
  uint32x4_t out = vdupq_n_u32(0);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const int32x4_t right = vdupq_n_s32(-8 * j - kShift);
    const int32x4_t code = vreinterpretq_s32_u32(vandq_u32(vshlq_u32(codes, right), vdupq_n_u32(15)));
    const int32x4_t w = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(vsubq_s32(code, zero)), ratio));
    const uint32x4_t byte = vandq_u32(vreinterpretq_u32_s32(w), vdupq_n_u32(255));
    out = vorrq_u32(out, vshlq_u32(byte, vdupq_n_s32(8 * j)));
  }
  return veorq_u32(out, vdupq_n_u32(0x80808080U));
}

void requantize(const S4RequantizeArgs& t) {
  constexpr ptrdiff_t kQuadBytes = kS4PanelWidth * 4;
  const S4Layout& layout = t.layout;
  const uint8_t* at = t.panel;
  uint8_t* out = t.out;
  for (ptrdiff_t g = 0; g < layout.n_groups(); ++g) {
    const ptrdiff_t n_blocks = layout.blocks(g);
    const uint8_t* tail = at + n_blocks * kQuadBytes;
    for (int c = 0; c < kS4PanelWidth; c += 4) {
      const float32x4_t column = vld1q_f32(t.column_scale + c);
      const float32x4_t quotient = vdivq_f32(scales_at(tail + 2 * c), column);
      const float32x4_t ratio = vbslq_f32(vcgtzq_f32(column), quotient, vdupq_n_f32(0.0F));
      const int32x4_t zero = zeros_at(layout.asymmetric ? tail + 2 * kS4PanelWidth + c : nullptr);
      for (ptrdiff_t b = 0; b < n_blocks; ++b) {
        const uint32x4_t codes = vreinterpretq_u32_u8(vld1q_u8(at + b * kQuadBytes + 4 * c));
        uint8_t* to = out + 2 * b * kQuadBytes + 4 * c;
        vst1q_u8(to, vreinterpretq_u8_u32(requantize4<0>(codes, zero, ratio)));
        vst1q_u8(to + kQuadBytes, vreinterpretq_u8_u32(requantize4<4>(codes, zero, ratio)));
      }
    }
    out += 2 * n_blocks * kQuadBytes;
    at = tail + layout.tail_bytes();
  }
}

}  // namespace
}  // namespace triptych::kernels
