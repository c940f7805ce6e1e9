// Six rows by 64 columns as in gemm_s8; here the broadcast bytes are the unsigned operand.
#include "backend/cpu/kernels/simd/vec_avx512.h"
//
#include "backend/cpu/kernels/attention_s8/attention_s8.h"
#include "backend/cpu/kernels/simd/row_count.h"

namespace triptych::kernels {
namespace {

typedef int __attribute__((may_alias, aligned(1))) UnalignedInt;

TRIPTYCH_INLINE void dot4(__m512i& sum, __m512i unsigned_bytes, __m512i signed_bytes) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
}

TRIPTYCH_INLINE __mmask64 first_bytes(ptrdiff_t n) {
  return n >= 64 ? ~__mmask64{0} : n <= 0 ? __mmask64{0} : (__mmask64{1} << n) - 1U;
}

void pack_keys(const S8PackKeysArgs& t) {
  const __m512i sign = _mm512_set1_epi8(-128);
  const int n_quads = (t.head_dim + 3) / 4;
  for (int first = 0; first < n_quads; first += 16) {
    const __mmask64 bytes = first_bytes(t.head_dim - 4 * first);
    const int quads = n_quads - first < 16 ? n_quads - first : 16;
    for (int j = 0; j < 64; j += 16) {
      Vf v[16];
      TRIPTYCH_UNROLL
      for (int i = 0; i < 16; ++i)
        v[i] = j + i < t.n_keys ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi8(
                                      bytes, static_cast<const char*>(t.rows[j + i]) + 4 * first))
                                : vzero();
      vtranspose(v);
      for (int i = 0; i < quads; ++i)
        _mm512_storeu_si512(t.panel + (first + i) * 256 + 4 * j,
                            _mm512_xor_si512(_mm512_castps_si512(v[i]), sign));
    }
  }
}

void pack_values(const S8PackValuesArgs& t) {
  const __mmask64 bytes = first_bytes(t.head_dim - t.column);
  // After unpacking, 128-bit lane l of vector i holds columns 16 l + 4 i ..: put in order.
  for (int j = 0; j < t.n_keys; j += 4) {
    __m512i r[4];
    TRIPTYCH_UNROLL
    for (int i = 0; i < 4; ++i)
      r[i] = j + i < t.n_keys
                 ? _mm512_maskz_loadu_epi8(bytes, static_cast<const char*>(t.rows[j + i]) + t.column)
                 : _mm512_setzero_si512();
    const __m512i a = _mm512_unpacklo_epi8(r[0], r[1]);
    const __m512i b = _mm512_unpackhi_epi8(r[0], r[1]);
    const __m512i c = _mm512_unpacklo_epi8(r[2], r[3]);
    const __m512i d = _mm512_unpackhi_epi8(r[2], r[3]);
    const __m512i v0 = _mm512_unpacklo_epi16(a, c);
    const __m512i v1 = _mm512_unpackhi_epi16(a, c);
    const __m512i v2 = _mm512_unpacklo_epi16(b, d);
    const __m512i v3 = _mm512_unpackhi_epi16(b, d);
    const __m512i lo01 = _mm512_shuffle_i32x4(v0, v1, 0x44);  // v0 lanes 0 1, v1 lanes 0 1
    const __m512i hi01 = _mm512_shuffle_i32x4(v0, v1, 0xee);
    const __m512i lo23 = _mm512_shuffle_i32x4(v2, v3, 0x44);
    const __m512i hi23 = _mm512_shuffle_i32x4(v2, v3, 0xee);
    int8_t* to = t.panel + j * 64;
    _mm512_storeu_si512(to, _mm512_shuffle_i32x4(lo01, lo23, 0x88));
    _mm512_storeu_si512(to + 64, _mm512_shuffle_i32x4(lo01, lo23, 0xdd));
    _mm512_storeu_si512(to + 128, _mm512_shuffle_i32x4(hi01, hi23, 0x88));
    _mm512_storeu_si512(to + 192, _mm512_shuffle_i32x4(hi01, hi23, 0xdd));
  }
}

TRIPTYCH_INLINE Mask lanes_before(int n) { return first_lanes(n); }

// A minimax polynomial of degree 4 on [0, 1), relative error 2.6e-6: a third of half a step of 16-bit codes.
TRIPTYCH_INLINE Vf exp2_below(Vf x) {
  const Vf r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  Vf p = vset(1.35341678e-2F);
  p = vfma(p, r, vset(5.20114608e-2F));
  p = vfma(p, r, vset(2.41442757e-1F));
  p = vfma(p, r, vset(6.93003834e-1F));
  p = vfma(p, r, vset(1.00000259F));
  return _mm512_scalef_ps(p, x);
}

// Packing keeps 128-bit lanes apart: afterwards lane l holds four codes of each of four vectors.
TRIPTYCH_INLINE __m512i in_order(__m512i bytes) {
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                  bytes);
}

// Codes of 32 weights in 16 bits, lanes interleaved.
TRIPTYCH_INLINE __m512i codes16(const float* weights, Vf factor) {
  return _mm512_packus_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(weights), factor)),
                             _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(weights + 16), factor)));
}

TRIPTYCH_INLINE void store_codes16(const float* weights, Vf factor, int n, uint8_t* high, uint8_t* low) {
  const __m512i byte = _mm512_set1_epi16(255);
  for (int j = 0; j < n; j += 64) {
    const __m512i a = codes16(weights + j, factor);
    const __m512i b = codes16(weights + j + 32, factor);
    _mm512_storeu_si512(high + j,
                        in_order(_mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8))));
    _mm512_storeu_si512(low + j,
                        in_order(_mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte))));
  }
}

TRIPTYCH_INLINE void store_codes8(const float* weights, Vf factor, int n, uint8_t* high) {
  for (int j = 0; j < n; j += 64)
    _mm512_storeu_si512(high + j, in_order(_mm512_packus_epi16(codes16(weights + j, factor),
                                                               codes16(weights + j + 32, factor))));
}

}  // namespace
}  // namespace triptych::kernels

#include "backend/cpu/kernels/attention_s8/attention_s8_body.h"

namespace triptych::kernels {
namespace {

template <int kRows>
TRIPTYCH_INLINE void add_products(__m512i (&sums)[kRows][4], const int8_t* panel, const uint8_t* weights,
                                  ptrdiff_t stride, ptrdiff_t quads) {
  for (ptrdiff_t i = 0; i < quads; ++i, panel += 256, weights += 4) {
    __m512i v[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) v[c] = _mm512_loadu_si512(panel + 64 * c);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512i w = _mm512_set1_epi32(*reinterpret_cast<const UnalignedInt*>(weights + r * stride));
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) dot4(sums[r][c], w, v[c]);
    }
  }
}

template <int kRows>
void rows(const S8AccumulateArgs& t) {
  __m512i sums[kRows][4];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sums[r][c] = _mm512_setzero_si512();
  add_products<kRows>(sums, t.panel, t.high, t.stride, t.quads);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sums[r][c] = _mm512_slli_epi32(sums[r][c], 8);
  if (t.low != nullptr) add_products<kRows>(sums, t.panel, t.low, t.stride, t.quads);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const Vf scale = vset(t.weight_scale[r]);
    const Vf rescale = vset(t.rescale[r]);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      float* y = t.y + r * t.y_stride + 16 * c;
      vstore(y, vfma(vload(y), rescale, vmul(_mm512_cvtepi32_ps(sums[r][c]), scale)));
    }
  }
}

void accumulate(const S8AccumulateArgs& t) {
  with_row_count<6>(t.n_rows, [&](auto n) { rows<n.value>(t); });
}

}  // namespace

extern const AttentionS8Kernels kAttentionS8Avx512Vnni = {"avx512_vnni", pack_keys, pack_values, soften,
                                                          accumulate};

}  // namespace triptych::kernels
