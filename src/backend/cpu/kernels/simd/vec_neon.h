// Eight floats in a pair of registers: the vector operations that kernel bodies (*_body.h) are written in,
// for NEON of ARMv8.0. A pair rather than one register of four: 32 registers hold the tiles of the 8-float
// bodies. Included by *_neon.cc, *_dotprod.cc and *_i8mm.cc only; see vec_avx512.h for the rules.
#pragma once

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/kernels/element_type.h"

#define TRIPTYCH_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define TRIPTYCH_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TRIPTYCH_UNROLL _Pragma("GCC unroll 64")
#endif

namespace triptych {
namespace {

struct Vf {
  float32x4_t low, high;
};
struct Mask {
  uint32x4_t low, high;  // all bits of a lane set or clear
};
constexpr int kLanes = 8;
constexpr int kTileRows = 6;  // 6 x 2 x 2 accumulators + 2 x 2 of columns + 1 broadcast = 29 of 32 registers

TRIPTYCH_INLINE Vf vzero() { return {vdupq_n_f32(0.0F), vdupq_n_f32(0.0F)}; }
TRIPTYCH_INLINE Vf vset(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
TRIPTYCH_INLINE Vf vload(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
TRIPTYCH_INLINE void vstore(float* p, Vf v) {
  vst1q_f32(p, v.low);
  vst1q_f32(p + 4, v.high);
}
/// First n (0..8) floats, the rest zero; memory behind them is not touched.
TRIPTYCH_INLINE Vf vload_n(const float* p, int n) {
  float part[8] = {};
  memcpy(part, p, static_cast<size_t>(n) * 4);
  return vload(part);
}
TRIPTYCH_INLINE void vstore_n(float* p, Vf v, int n) {
  float part[8];
  vstore(part, v);
  memcpy(p, part, static_cast<size_t>(n) * 4);
}

TRIPTYCH_INLINE Vf vadd(Vf a, Vf b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
TRIPTYCH_INLINE Vf vsub(Vf a, Vf b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
TRIPTYCH_INLINE Vf vmul(Vf a, Vf b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
TRIPTYCH_INLINE Vf vdiv(Vf a, Vf b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
TRIPTYCH_INLINE Vf vsqrt(Vf a) { return {vsqrtq_f32(a.low), vsqrtq_f32(a.high)}; }
TRIPTYCH_INLINE Vf vfma(Vf a, Vf b, Vf c) {  // a*b + c
  return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
TRIPTYCH_INLINE Vf vfnma(Vf a, Vf b, Vf c) {  // c - a*b
  return {vfmsq_f32(c.low, a.low, b.low), vfmsq_f32(c.high, a.high, b.high)};
}
// By comparing: FMIN and FMAX make a NaN of any operand that is one, these give x then.
TRIPTYCH_INLINE float32x4_t min4(float32x4_t c, float32x4_t x) { return vbslq_f32(vcltq_f32(c, x), c, x); }
TRIPTYCH_INLINE float32x4_t max4(float32x4_t c, float32x4_t x) { return vbslq_f32(vcgtq_f32(c, x), c, x); }
TRIPTYCH_INLINE Vf vmin(Vf c, Vf x) { return {min4(c.low, x.low), min4(c.high, x.high)}; }
TRIPTYCH_INLINE Vf vmax(Vf c, Vf x) { return {max4(c.low, x.low), max4(c.high, x.high)}; }
TRIPTYCH_INLINE Vf vround(Vf a) { return {vrndnq_f32(a.low), vrndnq_f32(a.high)}; }
TRIPTYCH_INLINE Vf vabs(Vf a) { return {vabsq_f32(a.low), vabsq_f32(a.high)}; }

TRIPTYCH_INLINE float32x4_t scale4(float32x4_t p, float32x4_t n) {
  const int32x4_t whole = vcvtnq_s32_f32(n);
  const int32x4_t half = vshrq_n_s32(whole, 1);
  const int32x4_t bias = vdupq_n_s32(127);
  const int32x4_t a = vshlq_n_s32(vaddq_s32(half, bias), 23);
  const int32x4_t b = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
  return vmulq_f32(vmulq_f32(p, vreinterpretq_f32_s32(a)), vreinterpretq_f32_s32(b));
}
/// p * 2^n for integral n in [-252, 252], with overflow to infinity. In two factors, so that subnormal
/// results are reached; the first product is exact.
TRIPTYCH_INLINE Vf vscale2(Vf p, Vf n) { return {scale4(p.low, n.low), scale4(p.high, n.high)}; }
TRIPTYCH_INLINE Vf vselect(Mask m, Vf yes, Vf no) {
  return {vbslq_f32(m.low, yes.low, no.low), vbslq_f32(m.high, yes.high, no.high)};
}
TRIPTYCH_INLINE Mask vless(Vf a, Vf b) { return {vcltq_f32(a.low, b.low), vcltq_f32(a.high, b.high)}; }
TRIPTYCH_INLINE Mask vequal(Vf a, Vf b) { return {vceqq_f32(a.low, b.low), vceqq_f32(a.high, b.high)}; }
TRIPTYCH_INLINE bool all_of(Mask m) { return vminvq_u32(vandq_u32(m.low, m.high)) != 0; }

/// Sum and maximum of the lanes, as a fixed tree.
TRIPTYCH_INLINE float vsum(Vf v) {
  const float32x4_t q = vaddq_f32(v.low, v.high);
  const float32x2_t h = vadd_f32(vget_low_f32(q), vget_high_f32(q));
  return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
/// vsum of each of four vectors.
TRIPTYCH_INLINE void vsum_each(const Vf* v, float* sums) {
  TRIPTYCH_UNROLL
  for (int i = 0; i < 4; ++i) sums[i] = vsum(v[i]);
}
TRIPTYCH_INLINE float vmax_lane(Vf v) {
  float32x4_t q = max4(v.low, v.high);
  q = max4(q, vextq_f32(q, q, 2));
  q = max4(q, vextq_f32(q, q, 1));
  return vgetq_lane_f32(q, 0);
}

/// Eight 16-bit patterns of T as floats.
template <ElementType T>
TRIPTYCH_INLINE Vf widen(uint16x8_t h) {
  if constexpr (T == ElementType::kF16) {
    const float16x8_t f = vreinterpretq_f16_u16(h);
    return {vcvt_f32_f16(vget_low_f16(f)), vcvt_high_f32_f16(f)};
  } else {
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(h, 16))};
  }
}
TRIPTYCH_INLINE uint16x8_t load_halves(const void* p) {
  return vreinterpretq_u16_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
}

/// Eight elements from index i of an array of T, as floats. Any alignment.
template <ElementType T>
TRIPTYCH_INLINE Vf vload_as(const void* p, ptrdiff_t i) {
  if constexpr (T == ElementType::kF32) {
    const uint8_t* at = static_cast<const uint8_t*>(p) + 4 * i;
    return {vreinterpretq_f32_u8(vld1q_u8(at)), vreinterpretq_f32_u8(vld1q_u8(at + 16))};
  } else {
    return widen<T>(load_halves(static_cast<const char*>(p) + 2 * i));
  }
}
template <ElementType T>
TRIPTYCH_INLINE Vf vload_as_n(const void* p, ptrdiff_t i, int n) {
  constexpr ptrdiff_t kBytes = T == ElementType::kF32 ? 4 : 2;
  char part[8 * kBytes] = {};
  memcpy(part, static_cast<const char*>(p) + kBytes * i, static_cast<size_t>(n * kBytes));
  return vload_as<T>(part, 0);
}
/// Half H of 16 elements at p, as gemv.h orders them: elements 8 H to 8 H + 7, of bf16 the even (H = 0) or
/// the odd ones, which cost one instruction to widen.
template <ElementType T, int H>
TRIPTYCH_INLINE Vf vload_half(const char* p) {
  if constexpr (T == ElementType::kBF16) {
    const uint32x4_t a = vreinterpretq_u32_u16(load_halves(p));
    const uint32x4_t b = vreinterpretq_u32_u16(load_halves(p + 16));
    if constexpr (H == 0)
      return {vreinterpretq_f32_u32(vshlq_n_u32(a, 16)), vreinterpretq_f32_u32(vshlq_n_u32(b, 16))};
    const uint32x4_t upper = vdupq_n_u32(0xffff0000U);
    return {vreinterpretq_f32_u32(vandq_u32(a, upper)), vreinterpretq_f32_u32(vandq_u32(b, upper))};
  } else {
    return vload_as<T>(p, 8 * H);
  }
}
/// The same of the first n < 16 elements, zeros behind them.
template <ElementType T, int H>
TRIPTYCH_INLINE Vf vload_half_n(const char* p, int n) {
  if constexpr (T == ElementType::kBF16) {
    char part[32] = {};
    memcpy(part, p, static_cast<size_t>(n) * 2);
    return vload_half<T, H>(part);
  } else {
    const int left = n - 8 * H;
    return left <= 0 ? vzero() : vload_as_n<T>(p, 8 * H, left < 8 ? left : 8);
  }
}

TRIPTYCH_INLINE uint16x4_t narrow_bf16(float32x4_t v) {
  const uint32x4_t u = vreinterpretq_u32_f32(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x00400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet), 16);
}
/// The eight 16-bit patterns of T, rounded to nearest even; NaN stays NaN.
template <ElementType T>
TRIPTYCH_INLINE uint16x8_t vnarrow(Vf v) {
  if constexpr (T == ElementType::kF16) {
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.low), v.high));
  } else {
    return vcombine_u16(narrow_bf16(v.low), narrow_bf16(v.high));
  }
}
template <ElementType T>
TRIPTYCH_INLINE void vstore_as(void* p, ptrdiff_t i, Vf v) {
  uint8_t* at = static_cast<uint8_t*>(p) + (T == ElementType::kF32 ? 4 : 2) * i;
  if constexpr (T == ElementType::kF32) {
    vst1q_u8(at, vreinterpretq_u8_f32(v.low));
    vst1q_u8(at + 16, vreinterpretq_u8_f32(v.high));
  } else {
    vst1q_u8(at, vreinterpretq_u8_u16(vnarrow<T>(v)));
  }
}
template <ElementType T>
TRIPTYCH_INLINE void vstore_as_n(void* p, ptrdiff_t i, Vf v, int n) {
  constexpr ptrdiff_t kBytes = T == ElementType::kF32 ? 4 : 2;
  char part[8 * kBytes];
  vstore_as<T>(part, 0, v);
  memcpy(static_cast<char*>(p) + kBytes * i, part, static_cast<size_t>(n * kBytes));
}

/// Four rows of four lanes become columns.
TRIPTYCH_INLINE void transpose4(float32x4_t& a, float32x4_t& b, float32x4_t& c, float32x4_t& d) {
  const float64x2_t ab0 = vreinterpretq_f64_f32(vtrn1q_f32(a, b));  // a0 b0 a2 b2
  const float64x2_t ab1 = vreinterpretq_f64_f32(vtrn2q_f32(a, b));  // a1 b1 a3 b3
  const float64x2_t cd0 = vreinterpretq_f64_f32(vtrn1q_f32(c, d));
  const float64x2_t cd1 = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
  a = vreinterpretq_f32_f64(vtrn1q_f64(ab0, cd0));
  b = vreinterpretq_f32_f64(vtrn1q_f64(ab1, cd1));
  c = vreinterpretq_f32_f64(vtrn2q_f64(ab0, cd0));
  d = vreinterpretq_f32_f64(vtrn2q_f64(ab1, cd1));
}
/// Rows become columns: v[i] lane j <-> v[j] lane i.
TRIPTYCH_INLINE void vtranspose(Vf* v) {
  transpose4(v[0].low, v[1].low, v[2].low, v[3].low);
  transpose4(v[4].high, v[5].high, v[6].high, v[7].high);
  transpose4(v[0].high, v[1].high, v[2].high, v[3].high);
  transpose4(v[4].low, v[5].low, v[6].low, v[7].low);
  TRIPTYCH_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float32x4_t t = v[i].high;
    v[i].high = v[4 + i].low;
    v[4 + i].low = t;
  }
}

// Eight rows of eight columns become columns; see vec_avx512.h.
TRIPTYCH_INLINE void vtranspose8(Vf* v) { vtranspose(v); }
constexpr int vector_of(int c) { return c; }
constexpr int part_of(int) { return 0; }
TRIPTYCH_INLINE Vf vkeep_rows(Vf v, int n) {
  const uint32x4_t limit = vdupq_n_u32(static_cast<uint32_t>(n));
  const uint32_t lanes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  return vselect({vcltq_u32(vld1q_u32(lanes), limit), vcltq_u32(vld1q_u32(lanes + 4), limit)}, v, vzero());
}
TRIPTYCH_INLINE void vstore_column(float* p, Vf v, int) { vstore(p, v); }
TRIPTYCH_INLINE void vstore_column_n(float* p, Vf v, int, int n) { vstore_n(p, v, n); }

/// Lane j of v holds the bits of two neighbouring elements of a 16-bit type: the first or the second as a
/// float.
template <ElementType T, bool kSecond>
TRIPTYCH_INLINE Vf vwiden_pair(Vf v) {
  const uint16x8_t a = vreinterpretq_u16_f32(v.low);
  const uint16x8_t b = vreinterpretq_u16_f32(v.high);
  return widen<T>(kSecond ? vuzp2q_u16(a, b) : vuzp1q_u16(a, b));
}

#define TRIPTYCH_HAS_BYTE_LOADS
/// Eight bytes as signed or unsigned integers, or as E4M3 floats divided by 256 (no NaN codes); of n < 8 only
/// those are read and the rest is zero.
TRIPTYCH_INLINE uint8x8_t vbytes(const void* p, int n) {
  if (n == 8) return vld1_u8(static_cast<const uint8_t*>(p));
  uint8_t part[8] = {};
  memcpy(part, p, static_cast<size_t>(n));
  return vld1_u8(part);
}
TRIPTYCH_INLINE Vf vload_s8(const void* p, int n) {
  const int16x8_t wide = vmovl_s8(vreinterpret_s8_u8(vbytes(p, n)));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_high_s16(wide))};
}
TRIPTYCH_INLINE Vf vload_f8_256th(const void* p, int n) {
  // The seven lower bits are those of a half with eight less in the exponent; subnormals come out right.
  const int16x8_t wide = vshll_n_s8(vreinterpret_s8_u8(vbytes(p, n)), 7);
  return widen<ElementType::kF16>(vandq_u16(vreinterpretq_u16_s16(wide), vdupq_n_u16(0xbfff)));
}
/// The lower (or upper) four bits of eight bytes.
template <bool kHigh>
TRIPTYCH_INLINE Vf vload_u4(const void* p, int n) {
  const uint8x8_t bytes = vbytes(p, n);
  const uint16x8_t wide = vmovl_u8(kHigh ? vshr_n_u8(bytes, 4) : vand_u8(bytes, vdup_n_u8(15)));
  return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide))), vcvtq_f32_u32(vmovl_high_u16(wide))};
}

/// To nearest even, in -128 .. 127; of n < 8 lanes only those are written.
TRIPTYCH_INLINE void vstore_s8(int8_t* p, Vf v, int n) {
  const Vf in_range = vmin(vset(127.0F), vmax(vset(-128.0F), v));
  const int16x8_t halves =
      vcombine_s16(vmovn_s32(vcvtnq_s32_f32(in_range.low)), vmovn_s32(vcvtnq_s32_f32(in_range.high)));
  const int8x8_t bytes = vmovn_s16(halves);
  if (n == 8) {
    vst1_s8(p, bytes);
  } else {
    int8_t part[8];
    vst1_s8(part, bytes);
    memcpy(p, part, static_cast<size_t>(n));
  }
}

/// The sums of four vectors' lanes: pairs of neighbours in kSum4Order, then pairs of these, and so on.
constexpr int kSum4Order[kLanes] = {0, 4, 1, 5, 2, 6, 3, 7};
TRIPTYCH_INLINE void vsum4(const Vf* v, float* sums) {
  float32x4_t s[4];
  TRIPTYCH_UNROLL
  for (int i = 0; i < 4; ++i) s[i] = vaddq_f32(v[i].low, v[i].high);
  vst1q_f32(sums, vpaddq_f32(vpaddq_f32(s[0], s[1]), vpaddq_f32(s[2], s[3])));
}

TRIPTYCH_INLINE void prefetch_l1(const void* p) { __builtin_prefetch(p, 0, 3); }
TRIPTYCH_INLINE void prefetch_l2(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace
}  // namespace triptych
