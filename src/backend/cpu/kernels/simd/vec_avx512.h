// Sixteen floats: the vector operations that kernel bodies (*_body.h) are written in, for AVX-512 F/BW/DQ/VL.
// Included by *_avx512*.cc only. Everything is in an unnamed namespace, so no function compiled with these
// flags can replace one of the baseline program at link time.
//
// NaN: vmin(c, x) and vmax(c, x) give x when either is NaN, so with the constant first a NaN passes through.
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

using Vf = __m512;
using Vi = __m512i;
using Mask = __mmask16;
constexpr int kLanes = 16;
constexpr int kTileRows = 14;  // 14 x 2 accumulators + 2 columns + 1 broadcast = 31 of 32 registers

TRIPTYCH_INLINE Mask first_lanes(int n) { return static_cast<Mask>((1U << n) - 1U); }

TRIPTYCH_INLINE Vf vzero() { return _mm512_setzero_ps(); }
TRIPTYCH_INLINE Vf vset(float x) { return _mm512_set1_ps(x); }
TRIPTYCH_INLINE Vf vload(const float* p) { return _mm512_loadu_ps(p); }
/// First n (0..16) floats, the rest zero; memory behind them is not touched.
TRIPTYCH_INLINE Vf vload_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
TRIPTYCH_INLINE void vstore(float* p, Vf v) { _mm512_storeu_ps(p, v); }
TRIPTYCH_INLINE void vstore_n(float* p, Vf v, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }

TRIPTYCH_INLINE Vf vadd(Vf a, Vf b) { return _mm512_add_ps(a, b); }
TRIPTYCH_INLINE Vf vsub(Vf a, Vf b) { return _mm512_sub_ps(a, b); }
TRIPTYCH_INLINE Vf vmul(Vf a, Vf b) { return _mm512_mul_ps(a, b); }
TRIPTYCH_INLINE Vf vdiv(Vf a, Vf b) { return _mm512_div_ps(a, b); }
TRIPTYCH_INLINE Vf vsqrt(Vf a) { return _mm512_sqrt_ps(a); }
TRIPTYCH_INLINE Vf vfma(Vf a, Vf b, Vf c) { return _mm512_fmadd_ps(a, b, c); }    // a*b + c
TRIPTYCH_INLINE Vf vfnma(Vf a, Vf b, Vf c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a*b
TRIPTYCH_INLINE Vf vmin(Vf c, Vf x) { return _mm512_min_ps(c, x); }
TRIPTYCH_INLINE Vf vmax(Vf c, Vf x) { return _mm512_max_ps(c, x); }
TRIPTYCH_INLINE Vf vround(Vf a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TRIPTYCH_INLINE Vf vabs(Vf a) { return _mm512_abs_ps(a); }
/// p * 2^n for integral n in [-252, 252], rounded once, with overflow to infinity.
TRIPTYCH_INLINE Vf vscale2(Vf p, Vf n) { return _mm512_scalef_ps(p, n); }
TRIPTYCH_INLINE Vf vselect(Mask m, Vf yes, Vf no) { return _mm512_mask_blend_ps(m, no, yes); }
TRIPTYCH_INLINE Mask vless(Vf a, Vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
TRIPTYCH_INLINE Mask vequal(Vf a, Vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
TRIPTYCH_INLINE bool all_of(Mask m) { return m == 0xffffU; }

/// Sum and maximum of the lanes, as a fixed tree.
TRIPTYCH_INLINE float vsum(Vf v) {
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  q = _mm_add_ss(q, _mm_movehdup_ps(q));
  return _mm_cvtss_f32(q);
}
/// vsum of each of four vectors.
TRIPTYCH_INLINE void vsum_each(const Vf* v, float* sums) {
  // Halves of two vectors side by side, then quarters of four.
  const Vf ab = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xee));
  const Vf cd = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xee));
  Vf q = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  q = _mm512_add_ps(q, _mm512_permute_ps(q, 0x4e));
  q = _mm512_add_ps(q, _mm512_permute_ps(q, 0xb1));
  const Vi firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  _mm_storeu_ps(sums, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, q)));
}
TRIPTYCH_INLINE float vmax_lane(Vf v) {
  __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  q = _mm_max_ss(q, _mm_movehdup_ps(q));
  return _mm_cvtss_f32(q);
}

/// The sums of four vectors' lanes: pairs of neighbours in kSum4Order, then pairs of these, and so on.
constexpr int kSum4Order[kLanes] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
TRIPTYCH_INLINE void vsum4(const Vf* v, float* sums) {
  __m256 h[4];
  TRIPTYCH_UNROLL
  for (int i = 0; i < 4; ++i)
    h[i] = _mm256_add_ps(_mm512_castps512_ps256(v[i]), _mm512_extractf32x8_ps(v[i], 1));
  const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(h[0], h[1]), _mm256_hadd_ps(h[2], h[3]));
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

/// Sixteen elements from index i of an array of T, as floats.
template <ElementType T>
TRIPTYCH_INLINE Vf vload_as(const void* p, ptrdiff_t i) {
  if constexpr (T == ElementType::kF32) {
    return _mm512_loadu_ps(static_cast<const char*>(p) + 4 * i);
  } else {
    const __m256i h =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const char*>(p) + 2 * i));
    if constexpr (T == ElementType::kF16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
}
template <ElementType T>
TRIPTYCH_INLINE Vf vload_as_n(const void* p, ptrdiff_t i, int n) {
  if constexpr (T == ElementType::kF32) {
    return _mm512_maskz_loadu_ps(first_lanes(n), static_cast<const char*>(p) + 4 * i);
  } else {
    const __m256i h = _mm256_maskz_loadu_epi16(first_lanes(n), static_cast<const char*>(p) + 2 * i);
    if constexpr (T == ElementType::kF16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
}
/// Half H of 32 elements at p, as gemv.h orders them: elements 16 H to 16 H + 15, of bf16 the even (H = 0) or
/// the odd ones, which cost one instruction to widen.
template <ElementType T, int H>
TRIPTYCH_INLINE Vf vload_half(const char* p) {
  if constexpr (T == ElementType::kBF16) {
    const Vi v = _mm512_loadu_si512(p);
    return _mm512_castsi512_ps(H == 0 ? _mm512_slli_epi32(v, 16)
                                      : _mm512_and_si512(v, _mm512_set1_epi32(-65536)));
  } else {
    return vload_as<T>(p, 16 * H);
  }
}
/// The same of the first n < 32 elements, zeros behind them.
template <ElementType T, int H>
TRIPTYCH_INLINE Vf vload_half_n(const char* p, int n) {
  if constexpr (T == ElementType::kBF16) {
    const Vi v = _mm512_maskz_loadu_epi16((__mmask32{1} << n) - 1U, p);
    return _mm512_castsi512_ps(H == 0 ? _mm512_slli_epi32(v, 16)
                                      : _mm512_and_si512(v, _mm512_set1_epi32(-65536)));
  } else {
    const int left = n - 16 * H;
    return left <= 0 ? vzero() : vload_as_n<T>(p, 16 * H, left < 16 ? left : 16);
  }
}

/// The sixteen 16-bit patterns of T, rounded to nearest even; NaN stays NaN.
template <ElementType T>
TRIPTYCH_INLINE __m256i vnarrow(Vf v) {
  if constexpr (T == ElementType::kF16) {
    return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  } else {
    const Vi u = _mm512_castps_si512(v);
    const Vi odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const Vi rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const Vi quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x00400000));
    const Mask nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
  }
}
template <ElementType T>
TRIPTYCH_INLINE void vstore_as(void* p, ptrdiff_t i, Vf v) {
  if constexpr (T == ElementType::kF32) {
    _mm512_storeu_ps(static_cast<char*>(p) + 4 * i, v);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<char*>(p) + 2 * i), vnarrow<T>(v));
  }
}
template <ElementType T>
TRIPTYCH_INLINE void vstore_as_n(void* p, ptrdiff_t i, Vf v, int n) {
  if constexpr (T == ElementType::kF32) {
    _mm512_mask_storeu_ps(static_cast<char*>(p) + 4 * i, first_lanes(n), v);
  } else {
    _mm256_mask_storeu_epi16(static_cast<char*>(p) + 2 * i, first_lanes(n), vnarrow<T>(v));
  }
}

/// Transposes within blocks of four rows and four lanes: v[4g + c] lane 4q + s becomes element (row 4g + s,
/// column 4q + c).
template <int kRows>
TRIPTYCH_INLINE void vtranspose_blocks(Vf* v) {
  Vf t[kRows];
  TRIPTYCH_UNROLL
  for (int i = 0; i < kRows; i += 2) {
    t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
  TRIPTYCH_UNROLL
  for (int i = 0; i < kRows; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]);
    const __m512d b = _mm512_castps_pd(t[i + 1]);
    const __m512d c = _mm512_castps_pd(t[i + 2]);
    const __m512d d = _mm512_castps_pd(t[i + 3]);
    v[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    v[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    v[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    v[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
}

/// Rows become columns: v[i] lane j <-> v[j] lane i.
TRIPTYCH_INLINE void vtranspose(Vf* v) {
  vtranspose_blocks<16>(v);
  Vf t[16];
  // Now the 4 x 4 blocks of lanes.
  TRIPTYCH_UNROLL
  for (int c = 0; c < 4; ++c) {
    const Vf lo01 = _mm512_shuffle_f32x4(v[c], v[4 + c], 0x88);
    const Vf hi01 = _mm512_shuffle_f32x4(v[c], v[4 + c], 0xdd);
    const Vf lo23 = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0x88);
    const Vf hi23 = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0xdd);
    t[c] = _mm512_shuffle_f32x4(lo01, lo23, 0x88);
    t[4 + c] = _mm512_shuffle_f32x4(hi01, hi23, 0x88);
    t[8 + c] = _mm512_shuffle_f32x4(lo01, lo23, 0xdd);
    t[12 + c] = _mm512_shuffle_f32x4(hi01, hi23, 0xdd);
  }
  TRIPTYCH_UNROLL
  for (int i = 0; i < 16; ++i) v[i] = t[i];
}

// Eight rows of sixteen columns become columns of eight rows, two to a vector. Packing takes eight rows at a
// time: rows a multiple of 4 KB apart share the eight places of one set of the first-level cache.
TRIPTYCH_INLINE void vtranspose8(Vf* v) {
  vtranspose_blocks<8>(v);
  Vf t[8];
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  TRIPTYCH_UNROLL
  for (int c = 0; c < 4; ++c) {
    const __m512d a = _mm512_castps_pd(v[c]);
    const __m512d b = _mm512_castps_pd(v[4 + c]);
    t[c] = _mm512_castpd_ps(_mm512_permutex2var_pd(a, low, b));
    t[4 + c] = _mm512_castpd_ps(_mm512_permutex2var_pd(a, high, b));
  }
  TRIPTYCH_UNROLL
  for (int i = 0; i < 8; ++i) v[i] = t[i];
}
/// Where column c is after vtranspose8: which vector, and which part of it.
constexpr int vector_of(int c) { return c % 4 + c / 8 * 4; }
constexpr int part_of(int c) { return c / 4 % 2; }
/// The first n rows of each column, the rest zero.
TRIPTYCH_INLINE Vf vkeep_rows(Vf v, int n) {
  const unsigned rows = (1U << n) - 1U;
  return _mm512_maskz_mov_ps(static_cast<Mask>(rows | rows << 8), v);
}
TRIPTYCH_INLINE __m256 column_part(Vf v, int part) {
  return part == 0 ? _mm512_castps512_ps256(v) : _mm512_extractf32x8_ps(v, 1);
}
TRIPTYCH_INLINE void vstore_column(float* p, Vf v, int part) { _mm256_storeu_ps(p, column_part(v, part)); }
TRIPTYCH_INLINE void vstore_column_n(float* p, Vf v, int part, int n) {
  _mm256_mask_storeu_ps(p, static_cast<__mmask8>((1U << n) - 1U), column_part(v, part));
}

/// Lane j of v holds the bits of two neighbouring elements of a 16-bit type: the first or the second as a
/// float.
template <ElementType T, bool kSecond>
TRIPTYCH_INLINE Vf vwiden_pair(Vf v) {
  const Vi bits = _mm512_castps_si512(v);
  if constexpr (T == ElementType::kBF16) {
    if constexpr (kSecond) return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-65536)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
  } else {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(kSecond ? _mm512_srli_epi32(bits, 16) : bits));
  }
}

#define TRIPTYCH_HAS_BYTE_LOADS
/// Sixteen bytes as signed or unsigned integers, or as E4M3 floats divided by 256 (no NaN codes); of n < 16
/// only those are read and the rest is zero.
TRIPTYCH_INLINE __m128i vbytes(const void* p, int n) {
  return n == 16 ? _mm_loadu_si128(static_cast<const __m128i*>(p))
                 : _mm_maskz_loadu_epi8(static_cast<__mmask16>((1U << n) - 1U), p);
}
TRIPTYCH_INLINE Vf vload_s8(const void* p, int n) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(vbytes(p, n)));
}
TRIPTYCH_INLINE Vf vload_f8_256th(const void* p, int n) {
  // The seven lower bits are those of a half with eight less in the exponent; subnormals come out right.
  const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(vbytes(p, n)), 7);
  return _mm512_cvtph_ps(_mm256_and_si256(wide, _mm256_set1_epi16(static_cast<short>(0xbfff))));
}
/// The lower (or upper) four bits of sixteen bytes.
template <bool kHigh>
TRIPTYCH_INLINE Vf vload_u4(const void* p, int n) {
  const Vi v = _mm512_cvtepu8_epi32(vbytes(p, n));
  return _mm512_cvtepi32_ps(kHigh ? _mm512_srli_epi32(v, 4) : _mm512_and_si512(v, _mm512_set1_epi32(15)));
}

/// To nearest even, in -128 .. 127; of n < 16 lanes only those are written.
TRIPTYCH_INLINE void vstore_s8(int8_t* p, Vf v, int n) {
  const Vf in_range = vmin(vset(127.0F), vmax(vset(-128.0F), v));
  const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(in_range));
  if (n == 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  } else {
    _mm_mask_storeu_epi8(p, static_cast<__mmask16>((1U << n) - 1U), bytes);
  }
}

TRIPTYCH_INLINE void prefetch_l1(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
TRIPTYCH_INLINE void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace
}  // namespace triptych
