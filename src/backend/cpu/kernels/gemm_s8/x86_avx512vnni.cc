// Six rows by 64 columns: 24 sums in registers, four loads of the weight and six broadcasts for 24 VPDPBUSD.
// The instruction is written out: GCC 12 keeps the sums in memory when it may choose the registers of the
// intrinsic.
#include <immintrin.h>

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/simd/row_count.h"

namespace triptych::kernels {
namespace {

typedef int __attribute__((may_alias, aligned(1))) UnalignedInt;

inline void dot4(__m512i& sum, __m512i unsigned_bytes, __m512i signed_bytes) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
}

template <int kRows>
void rows(const S8TileArgs& t) {
  __m512i sums[kRows][4];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sums[r][c] = _mm512_setzero_si512();
  const uint8_t* w = t.panel;
  const int8_t* q = t.q;
  for (ptrdiff_t i = 0; i < t.quads; ++i, w += kS8PanelWidth * 4, q += 4) {
    // Few rows stream the weight from memory: ask for it ahead. More rows find it in the second-level cache.
    if constexpr (kRows <= 2) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) _mm_prefetch(reinterpret_cast<const char*>(w + 4096 + 64 * c), _MM_HINT_T0);
    }
    __m512i b[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) b[c] = _mm512_loadu_si512(w + 64 * c);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512i a = _mm512_set1_epi32(*reinterpret_cast<const UnalignedInt*>(q + r * t.q_stride));
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) dot4(sums[r][c], b[c], a);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const __m512i correction = _mm512_set1_epi32(128 * t.row_sum[r]);
    const __m512 row_scale = _mm512_set1_ps(t.row_scale[r]);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const __m512 scale = _mm512_mul_ps(row_scale, _mm512_loadu_ps(t.column_scale + 16 * c));
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[r][c], correction));
      _mm512_storeu_ps(t.y + r * t.y_stride + 16 * c, _mm512_mul_ps(sum, scale));
    }
  }
}

void tile(const S8TileArgs& t) {
  with_row_count<6>(t.n_rows, [&](auto n) { rows<n.value>(t); });
}

inline __mmask16 first(ptrdiff_t n) { return static_cast<__mmask16>(n >= 16 ? 0xffff : (1U << n) - 1); }

void quantize(const S8QuantizeArgs& t) {
  // Magnitudes compare as integers, and infinity and NaN are the largest.
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  __m512i largest_bits = _mm512_setzero_si512();
  for (ptrdiff_t i = 0; i < t.k; i += 16)
    largest_bits = _mm512_max_epi32(
        largest_bits,
        _mm512_and_si512(mask, _mm512_castps_si512(_mm512_maskz_loadu_ps(first(t.k - i), t.x + i))));
  const int bits = _mm512_reduce_max_epi32(largest_bits);
  const ptrdiff_t padded = 4 * s8_quads(t.k);
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  *t.scale = bits < 0x7f800000 ? largest / 127.0F : __builtin_nanf("");
  // Below the smallest normal number 127 / largest would be infinite.
  const bool nothing = bits >= 0x7f800000 || largest < 1e-36F;
  const __m512 factor = _mm512_set1_ps(nothing ? 0.0F : 127.0F / largest);
  const __mmask16 keep = nothing ? 0 : 0xffff;
  const __m512i low = _mm512_set1_epi32(-127);
  const __m512i high = _mm512_set1_epi32(127);
  __m512i total = _mm512_setzero_si512();
  for (ptrdiff_t i = 0; i < padded; i += 16) {
    const __m512 x = _mm512_maskz_loadu_ps(first(t.k - i) & keep, t.x + i);
    __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(x, factor));
    q = _mm512_min_epi32(_mm512_max_epi32(q, low), high);
    total = _mm512_add_epi32(total, q);
    _mm512_mask_cvtepi32_storeu_epi8(t.q + i, first(padded - i), q);
  }
  *t.sum = _mm512_reduce_add_epi32(total);
}

void sums(const S8SumsArgs& t) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i squares = _mm512_setzero_si512();
  const ptrdiff_t group = t.group < t.k ? t.group : t.k;
  for (ptrdiff_t begin = 0; begin < t.k; begin += group) {
    const ptrdiff_t end = t.k - begin < group ? t.k : begin + group;
    __m512i total = _mm512_setzero_si512();
    for (ptrdiff_t i = begin; i < end; i += 64) {
      const ptrdiff_t n = end - i;
      const __m512i q = _mm512_maskz_loadu_epi8(n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1, t.q + i);
      dot4(total, ones, q);
      const __m512i low = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(q));
      const __m512i high = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(q, 1));
      squares = _mm512_add_epi32(squares, _mm512_madd_epi16(low, low));
      squares = _mm512_add_epi32(squares, _mm512_madd_epi16(high, high));
    }
    if (t.group_sums != nullptr) t.group_sums[begin / group] = _mm512_reduce_add_epi32(total);
  }
  *t.square_sum = _mm512_reduce_add_epi32(squares);
}

}  // namespace

extern const GemmS8Kernels kGemmS8Avx512Vnni = {"avx512_vnni", quantize, tile, sums};

}  // namespace triptych::kernels
