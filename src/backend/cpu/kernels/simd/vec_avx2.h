// Eight floats: the vector operations that kernel bodies (*_body.h) are written in, for AVX2 with FMA and
// F16C. Included by *_avx2.cc only; see vec_avx512.h for the rules.
#pragma once

#include <immintrin.h>
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

using Vf = __m256;
using Vi = __m256i;
using Mask = __m256;  // all bits of a lane set or clear
constexpr int kLanes = 8;
constexpr int kTileRows = 6;  // 6 x 2 accumulators + 2 columns + 1 broadcast = 15 of 16 registers

TRIPTYCH_INLINE Vi first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

TRIPTYCH_INLINE Vf vzero() { return _mm256_setzero_ps(); }
TRIPTYCH_INLINE Vf vset(float x) { return _mm256_set1_ps(x); }
TRIPTYCH_INLINE Vf vload(const float* p) { return _mm256_loadu_ps(p); }
/// First n (0..8) floats, the rest zero; memory behind them is not touched.
TRIPTYCH_INLINE Vf vload_n(const float* p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
TRIPTYCH_INLINE void vstore(float* p, Vf v) { _mm256_storeu_ps(p, v); }
TRIPTYCH_INLINE void vstore_n(float* p, Vf v, int n) { _mm256_maskstore_ps(p, first_lanes(n), v); }

TRIPTYCH_INLINE Vf vadd(Vf a, Vf b) { return _mm256_add_ps(a, b); }
TRIPTYCH_INLINE Vf vsub(Vf a, Vf b) { return _mm256_sub_ps(a, b); }
TRIPTYCH_INLINE Vf vmul(Vf a, Vf b) { return _mm256_mul_ps(a, b); }
TRIPTYCH_INLINE Vf vdiv(Vf a, Vf b) { return _mm256_div_ps(a, b); }
TRIPTYCH_INLINE Vf vsqrt(Vf a) { return _mm256_sqrt_ps(a); }
TRIPTYCH_INLINE Vf vfma(Vf a, Vf b, Vf c) { return _mm256_fmadd_ps(a, b, c); }    // a*b + c
TRIPTYCH_INLINE Vf vfnma(Vf a, Vf b, Vf c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a*b
TRIPTYCH_INLINE Vf vmin(Vf c, Vf x) { return _mm256_min_ps(c, x); }
TRIPTYCH_INLINE Vf vmax(Vf c, Vf x) { return _mm256_max_ps(c, x); }
TRIPTYCH_INLINE Vf vround(Vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
TRIPTYCH_INLINE Vf vabs(Vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), a); }
/// p * 2^n for integral n in [-252, 252], with overflow to infinity. In two factors, so that subnormal
/// results are reached; the first product is exact.
TRIPTYCH_INLINE Vf vscale2(Vf p, Vf n) {
  const Vi whole = _mm256_cvtps_epi32(n);
  const Vi half = _mm256_srai_epi32(whole, 1);
  const Vi bias = _mm256_set1_epi32(127);
  const Vi a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const Vi b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}
TRIPTYCH_INLINE Vf vselect(Mask m, Vf yes, Vf no) { return _mm256_blendv_ps(no, yes, m); }
TRIPTYCH_INLINE Mask vless(Vf a, Vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
TRIPTYCH_INLINE Mask vequal(Vf a, Vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
TRIPTYCH_INLINE bool all_of(Mask m) { return _mm256_movemask_ps(m) == 0xff; }

/// Sum and maximum of the lanes, as a fixed tree.
TRIPTYCH_INLINE float vsum(Vf v) {
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  q = _mm_add_ss(q, _mm_movehdup_ps(q));
  return _mm_cvtss_f32(q);
}
/// vsum of each of four vectors.
TRIPTYCH_INLINE void vsum_each(const Vf* v, float* sums) {
  const Vf ab =
      _mm256_add_ps(_mm256_permute2f128_ps(v[0], v[1], 0x20), _mm256_permute2f128_ps(v[0], v[1], 0x31));
  const Vf cd =
      _mm256_add_ps(_mm256_permute2f128_ps(v[2], v[3], 0x20), _mm256_permute2f128_ps(v[2], v[3], 0x31));
  // a0 c0 a1 c1 | b0 d0 b1 d1, and the same of lanes 2 and 3
  const Vf q = _mm256_add_ps(_mm256_unpacklo_ps(ab, cd), _mm256_unpackhi_ps(ab, cd));
  const Vf s = _mm256_add_ps(q, _mm256_permute_ps(q, 0x4e));
  _mm_storeu_ps(sums, _mm_unpacklo_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}
TRIPTYCH_INLINE float vmax_lane(Vf v) {
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  q = _mm_max_ss(q, _mm_movehdup_ps(q));
  return _mm_cvtss_f32(q);
}

TRIPTYCH_INLINE Vf widen_bf16(__m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/// Eight elements from index i of an array of T, as floats.
template <ElementType T>
TRIPTYCH_INLINE Vf vload_as(const void* p, ptrdiff_t i) {
  if constexpr (T == ElementType::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(static_cast<const char*>(p) + 4 * i));
  } else {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(p) + 2 * i));
    if constexpr (T == ElementType::kF16) return _mm256_cvtph_ps(h);
    return widen_bf16(h);
  }
}
template <ElementType T>
TRIPTYCH_INLINE Vf vload_as_n(const void* p, ptrdiff_t i, int n) {
  if constexpr (T == ElementType::kF32) {
    return _mm256_maskload_ps(reinterpret_cast<const float*>(static_cast<const char*>(p) + 4 * i),
                              first_lanes(n));
  } else {
    uint16_t part[8] = {};
    memcpy(part, static_cast<const char*>(p) + 2 * i, static_cast<size_t>(n) * 2);
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(part));
    if constexpr (T == ElementType::kF16) return _mm256_cvtph_ps(h);
    return widen_bf16(h);
  }
}
/// Half H of 16 elements at p, as gemv.h orders them: elements 8 H to 8 H + 7, of bf16 the even (H = 0) or
/// the odd ones, which cost one instruction to widen.
template <ElementType T, int H>
TRIPTYCH_INLINE Vf vload_half(const char* p) {
  if constexpr (T == ElementType::kBF16) {
    const Vi v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_castsi256_ps(H == 0 ? _mm256_slli_epi32(v, 16)
                                      : _mm256_and_si256(v, _mm256_set1_epi32(-65536)));
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

/// The eight 16-bit patterns of T, rounded to nearest even; NaN stays NaN.
template <ElementType T>
TRIPTYCH_INLINE __m128i vnarrow(Vf v) {
  if constexpr (T == ElementType::kF16) {
    return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  } else {
    const Vi u = _mm256_castps_si256(v);
    const Vi odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const Vi rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const Vi quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x00400000));
    const Vi nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const Vi bits = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  }
}
template <ElementType T>
TRIPTYCH_INLINE void vstore_as(void* p, ptrdiff_t i, Vf v) {
  if constexpr (T == ElementType::kF32) {
    _mm256_storeu_ps(reinterpret_cast<float*>(static_cast<char*>(p) + 4 * i), v);
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(static_cast<char*>(p) + 2 * i), vnarrow<T>(v));
  }
}
template <ElementType T>
TRIPTYCH_INLINE void vstore_as_n(void* p, ptrdiff_t i, Vf v, int n) {
  if constexpr (T == ElementType::kF32) {
    _mm256_maskstore_ps(reinterpret_cast<float*>(static_cast<char*>(p) + 4 * i), first_lanes(n), v);
  } else {
    uint16_t part[8];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(part), vnarrow<T>(v));
    memcpy(static_cast<char*>(p) + 2 * i, part, static_cast<size_t>(n) * 2);
  }
}

/// Rows become columns: v[i] lane j <-> v[j] lane i.
TRIPTYCH_INLINE void vtranspose(Vf* v) {
  Vf t[8];
  TRIPTYCH_UNROLL
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  TRIPTYCH_UNROLL
  for (int i = 0; i < 8; i += 4) {
    v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  TRIPTYCH_UNROLL
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm256_permute2f128_ps(v[c], v[4 + c], 0x20);
    t[4 + c] = _mm256_permute2f128_ps(v[c], v[4 + c], 0x31);
  }
  TRIPTYCH_UNROLL
  for (int i = 0; i < 8; ++i) v[i] = t[i];
}

// Eight rows of eight columns become columns; see vec_avx512.h.
TRIPTYCH_INLINE void vtranspose8(Vf* v) { vtranspose(v); }
constexpr int vector_of(int c) { return c; }
constexpr int part_of(int) { return 0; }
TRIPTYCH_INLINE Vf vkeep_rows(Vf v, int n) { return _mm256_and_ps(_mm256_castsi256_ps(first_lanes(n)), v); }
TRIPTYCH_INLINE void vstore_column(float* p, Vf v, int) { _mm256_storeu_ps(p, v); }
TRIPTYCH_INLINE void vstore_column_n(float* p, Vf v, int, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), v);
}

/// Lane j of v holds the bits of two neighbouring elements of a 16-bit type: the first or the second as a
/// float.
template <ElementType T, bool kSecond>
TRIPTYCH_INLINE Vf vwiden_pair(Vf v) {
  const Vi bits = _mm256_castps_si256(v);
  if constexpr (T == ElementType::kBF16) {
    if constexpr (kSecond) return _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(-65536)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
  } else {
    const Vi half = kSecond ? _mm256_srli_epi32(bits, 16) : _mm256_and_si256(bits, _mm256_set1_epi32(0xffff));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
  }
}

#define TRIPTYCH_HAS_BYTE_LOADS
/// Eight bytes as signed or unsigned integers, or as E4M3 floats divided by 256 (no NaN codes); of n < 8 only
/// those are read and the rest is zero.
TRIPTYCH_INLINE __m128i vbytes(const void* p, int n) {
  if (n == 8) return _mm_loadl_epi64(static_cast<const __m128i*>(p));
  char part[8] = {};
  memcpy(part, p, static_cast<size_t>(n));
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(part));
}
TRIPTYCH_INLINE Vf vload_s8(const void* p, int n) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(vbytes(p, n)));
}
TRIPTYCH_INLINE Vf vload_f8_256th(const void* p, int n) {
  // The seven lower bits are those of a half with eight less in the exponent; subnormals come out right.
  const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(vbytes(p, n)), 7);
  return _mm256_cvtph_ps(_mm_and_si128(wide, _mm_set1_epi16(static_cast<short>(0xbfff))));
}
/// The lower (or upper) four bits of eight bytes.
template <bool kHigh>
TRIPTYCH_INLINE Vf vload_u4(const void* p, int n) {
  const Vi v = _mm256_cvtepu8_epi32(vbytes(p, n));
  return _mm256_cvtepi32_ps(kHigh ? _mm256_srli_epi32(v, 4) : _mm256_and_si256(v, _mm256_set1_epi32(15)));
}

/// To nearest even, in -128 .. 127; of n < 8 lanes only those are written.
TRIPTYCH_INLINE void vstore_s8(int8_t* p, Vf v, int n) {
  const Vf in_range = vmin(vset(127.0F), vmax(vset(-128.0F), v));
  const Vi words = _mm256_cvtps_epi32(in_range);
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  const __m128i bytes = _mm_packs_epi16(halves, halves);
  if (n == 8) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), bytes);
  } else {
    char part[8];
    _mm_storel_epi64(reinterpret_cast<__m128i*>(part), bytes);
    memcpy(p, part, static_cast<size_t>(n));
  }
}

/// The sums of four vectors' lanes: pairs of neighbours in kSum4Order, then pairs of these, and so on.
constexpr int kSum4Order[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7};
TRIPTYCH_INLINE void vsum4(const Vf* v, float* sums) {
  const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

TRIPTYCH_INLINE void prefetch_l1(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
TRIPTYCH_INLINE void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace
}  // namespace triptych
