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

inline __mmask16 first(ptrdiff_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1U << n) - 1);
}

// Sixteen values of row x from i on, zeros behind its k.
inline __m512 values_at(const float* x, ptrdiff_t i, ptrdiff_t k) {
  return _mm512_maskz_loadu_ps(first(k - i), x + i);
}

void quantize(const S8QuantizeArgs& t) {
  // Magnitudes compare as integers, and infinity and NaN are the largest.
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  const auto magnitude = [&](__m512 v) { return _mm512_and_si512(mask, _mm512_castps_si512(v)); };
  __m512i most[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  ptrdiff_t i = 0;
  for (; i + 32 <= t.k; i += 32) {
    most[0] = _mm512_max_epu32(most[0], magnitude(_mm512_loadu_ps(t.x + i)));
    most[1] = _mm512_max_epu32(most[1], magnitude(_mm512_loadu_ps(t.x + i + 16)));
  }
  for (; i < t.k; i += 16) most[0] = _mm512_max_epu32(most[0], magnitude(values_at(t.x, i, t.k)));
  const auto bits = static_cast<int>(_mm512_reduce_max_epu32(_mm512_max_epu32(most[0], most[1])));
  const bool in_tiles = t.tile_quads > 0;
  const ptrdiff_t padded = 4 * (in_tiles ? t.tile_quads : s8_quads(t.k));
  const ptrdiff_t step = in_tiles ? kTile_bytes : 64;  // from 64 codes to the next
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  *t.scale = bits < 0x7f800000 ? largest / 127.0F : __builtin_nanf("");
  // Below the smallest normal number 127 / largest would be infinite.
  if (bits >= 0x7f800000 || largest < 1e-36F) {
    for (i = 0; i < padded; i += 64)
      __builtin_memset(t.q + i / 64 * step, 0,
                       static_cast<size_t>(in_tiles || padded - i > 64 ? 64 : padded - i));
    *t.sum = 0;
    if (t.square_sum != nullptr) *t.square_sum = 0;
    return;
  }
  const __m512 factor = _mm512_set1_ps(127.0F / largest);
  const auto code = [&](__m512 v) { return _mm512_cvtps_epi32(_mm512_mul_ps(v, factor)); };  // -127 .. 127
  const __m512i ones = _mm512_set1_epi8(1);
  // Packing keeps 128-bit lanes apart.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i total = _mm512_setzero_si512();
  __m512i squares = _mm512_setzero_si512();
  int8_t* to = t.q;
  for (i = 0; i + 64 <= t.k; i += 64, to += step) {
    const float* x = t.x + i;
    const __m512i a = _mm512_packs_epi32(code(_mm512_loadu_ps(x)), code(_mm512_loadu_ps(x + 16)));
    const __m512i b = _mm512_packs_epi32(code(_mm512_loadu_ps(x + 32)), code(_mm512_loadu_ps(x + 48)));
    const __m512i q = _mm512_packs_epi16(a, b);
    dot4(total, ones, q);
    squares = _mm512_add_epi32(squares, _mm512_add_epi32(_mm512_madd_epi16(a, a), _mm512_madd_epi16(b, b)));
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, q));
  }
  if (in_tiles && padded % 64 != 0) _mm512_storeu_si512(t.q + padded / 64 * step, _mm512_setzero_si512());
  for (; i < padded; i += 16) {
    const __m512i q = code(values_at(t.x, i, t.k));
    total = _mm512_add_epi32(total, q);
    squares = _mm512_add_epi32(squares, _mm512_mullo_epi32(q, q));
    to = t.q + (in_tiles ? s8_tile_at(t.tile_quads, i) : i);
    _mm512_mask_cvtepi32_storeu_epi8(to, first(padded - i), q);
  }
  *t.sum = _mm512_reduce_add_epi32(total);
  if (t.square_sum != nullptr) *t.square_sum = _mm512_reduce_add_epi32(squares);
}

void sums(const S8SumsArgs& t) {
  const __m512i ones = _mm512_set1_epi8(1);
  const ptrdiff_t group = t.group < t.k ? t.group : t.k;
  for (ptrdiff_t begin = 0; begin < t.k; begin += group) {
    const ptrdiff_t end = t.k - begin < group ? t.k : begin + group;
    __m512i total = _mm512_setzero_si512();
    for (ptrdiff_t i = begin; i < end; i += 64) {
      const ptrdiff_t n = end - i;
      const __m512i q = _mm512_maskz_loadu_epi8(n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1, t.q + i);
      dot4(total, ones, q);
    }
    t.group_sums[begin / group] = _mm512_reduce_add_epi32(total);
  }
}

}  // namespace

extern const GemmS8Kernels kGemmS8Avx512Vnni = {"avx512_vnni", quantize, tile, sums};

}  // namespace triptych::kernels
