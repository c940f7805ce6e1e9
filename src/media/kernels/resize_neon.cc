// Both passes with NEON, which multiplies 32-bit integers: sums modulo 2^32 of whole weights.
#include <arm_neon.h>
#include <string.h>

#include "media/kernels/resize_kernels.h"

namespace triptych::resize_kernels {
namespace {

// Unsigned: sums may wrap on the way.
inline uint32x4_t half() noexcept { return vdupq_n_u32(1U << (kPrecisionBits - 1)); }

// Four, eight sums become bytes between 0 and 255.
inline uint16x4_t clip(uint32x4_t sum) noexcept {
  return vqmovun_s32(vshrq_n_s32(vreinterpretq_s32_u32(sum), kPrecisionBits));
}
inline uint8x8_t clip(uint32x4_t a, uint32x4_t b) noexcept {
  return vqmovn_u16(vcombine_u16(clip(a), clip(b)));
}

// One row: the lanes of a sum are R, G, B and nothing.
void one_row(const Taps& taps, const uint8_t* src, uint8_t* dst) noexcept {
  // Pixel k of the four at a place: bytes 3 k to 3 k + 2, each to 32 bits; 255 gives zero.
  static const uint8_t kPick[4][16] = {
      {0, 255, 255, 255, 1, 255, 255, 255, 2, 255, 255, 255, 255, 255, 255, 255},
      {3, 255, 255, 255, 4, 255, 255, 255, 5, 255, 255, 255, 255, 255, 255, 255},
      {6, 255, 255, 255, 7, 255, 255, 255, 8, 255, 255, 255, 255, 255, 255, 255},
      {9, 255, 255, 255, 10, 255, 255, 255, 11, 255, 255, 255, 255, 255, 255, 255}};
  const uint8x16_t pick[4] = {vld1q_u8(kPick[0]), vld1q_u8(kPick[1]), vld1q_u8(kPick[2]), vld1q_u8(kPick[3])};
  const auto pixel = [&pick](uint8x16_t bytes, int k) {
    return vreinterpretq_u32_u8(vqtbl1q_u8(bytes, pick[k]));
  };
  for (int x = 0; x < taps.n_out; ++x, dst += 3) {
    const uint8_t* px = src + ptrdiff_t{taps.first[x]} * 3;
    const int32_t* weight = taps.weights + ptrdiff_t{x} * taps.n_taps;
    uint32x4_t sum0 = half();
    uint32x4_t sum1 = vdupq_n_u32(0);
    for (int k = 0; k < taps.n_taps; k += kGroup, px += kGroup * 3) {
      const uint8x16_t bytes = vld1q_u8(px);
      const uint32x4_t w = vreinterpretq_u32_s32(vld1q_s32(weight + k));
      sum0 = vmlaq_laneq_u32(sum0, pixel(bytes, 0), w, 0);
      sum1 = vmlaq_laneq_u32(sum1, pixel(bytes, 1), w, 1);
      sum0 = vmlaq_laneq_u32(sum0, pixel(bytes, 2), w, 2);
      sum1 = vmlaq_laneq_u32(sum1, pixel(bytes, 3), w, 3);
    }
    uint8_t rgb[8];
    vst1_u8(rgb, clip(vaddq_u32(sum0, sum1), vdupq_n_u32(0)));
    memcpy(dst, rgb, 3);
  }
}

// 16 columns of one output row, read at src and written at dst.
inline void sixteen_columns(const VerticalArgs& args, const uint8_t* src, uint8_t* dst) noexcept {
  const int count = args.taps.count[args.out_row];
  const int32_t* weight = args.taps.weights + ptrdiff_t{args.out_row} * args.taps.n_taps;
  uint32x4_t sum[4] = {half(), half(), half(), half()};
  for (int k = 0; k < count; ++k, src += args.src_stride) {
    const auto w = static_cast<uint32_t>(weight[k]);
    const uint8x16_t bytes = vld1q_u8(src);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
    const uint16x8_t high = vmovl_high_u8(bytes);
    sum[0] = vmlaq_n_u32(sum[0], vmovl_u16(vget_low_u16(low)), w);
    sum[1] = vmlaq_n_u32(sum[1], vmovl_high_u16(low), w);
    sum[2] = vmlaq_n_u32(sum[2], vmovl_u16(vget_low_u16(high)), w);
    sum[3] = vmlaq_n_u32(sum[3], vmovl_high_u16(high), w);
  }
  vst1q_u8(dst, vcombine_u8(clip(sum[0], sum[1]), clip(sum[2], sum[3])));
}

}  // namespace

void horizontal_neon(const HorizontalArgs& args) noexcept {
  for (int row = 0; row < args.n_rows; ++row) one_row(args.taps, args.src[row], args.dst[row]);
}

void vertical_neon(const VerticalArgs& args) noexcept {
  if (args.n_bytes < 16) return vertical_scalar(args);
  const uint8_t* src = args.src + args.taps.first[args.out_row] * args.src_stride;
  int column = 0;
  for (; column + 16 <= args.n_bytes; column += 16) sixteen_columns(args, src + column, args.dst + column);
  if (column < args.n_bytes) {  // the last block overlaps the one before
    column = args.n_bytes - 16;
    sixteen_columns(args, src + column, args.dst + column);
  }
}

}  // namespace triptych::resize_kernels
