#include <immintrin.h>

#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"
#include "backend/cpu/kernels/simd/row_count.h"

namespace triptych::kernels {
namespace {

typedef int __attribute__((may_alias, aligned(1))) UnalignedInt;

// Written out for the registers' sake, as in gemm_s8.
inline void dot4(__m512i& sum, __m512i unsigned_bytes, __m512i signed_bytes) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
}

inline __m512i broadcast4(const int8_t* at) {
  return _mm512_set1_epi32(*reinterpret_cast<const UnalignedInt*>(at));
}

struct GroupTail {
  __m512 scale;
  __m512i zero;
};
// Of 16 columns from `column` on, behind a group's codes.
inline GroupTail load_tail(const S4Layout& layout, const uint8_t* tail, int column) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(tail + 2 * column))),
          layout.asymmetric
              ? _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tail + 128 + column)))
              : _mm512_set1_epi32(8)};
}

// Group by group: a group's codes come from memory once and are read again, for other columns of more than
// six rows, from the first-level cache. Sums of up to 24 vectors stay in registers; y is finished group by
// group in memory.
template <int kRows>
void rows_of(const S4RowsArgs& t) {
  constexpr int kVectors = kRows <= 6 ? 4 : 2;
  const S4Layout& layout = t.layout;
  const ptrdiff_t n_groups = layout.n_groups();
  const __m512i mask = _mm512_set1_epi8(15);
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < 4; ++c) _mm512_storeu_ps(t.y + r * t.y_stride + 16 * c, _mm512_setzero_ps());
  const uint8_t* panel = t.panel;
  const int8_t* group_q = t.q;
  for (ptrdiff_t g = 0; g < n_groups; ++g) {
    const ptrdiff_t n_blocks = layout.blocks(g);
    const uint8_t* tail = panel + n_blocks * 256;
    for (int first = 0; first < 4; first += kVectors) {
      __m512i sums[kRows][kVectors];
      // The zero point of symmetric codes is taken off before they are added up.
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const __m512i total = _mm512_set1_epi32(t.group_sums[r * n_groups + g]);
        const __m512i begin = layout.asymmetric
                                  ? _mm512_setzero_si512()
                                  : _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(total, 3));
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c) sums[r][c] = begin;
      }
      const uint8_t* at = panel + 64 * first;
      const int8_t* q = group_q;
      for (ptrdiff_t b = 0; b < n_blocks; ++b, at += 256, q += 8) {
#pragma GCC unroll 2
        for (int pair = 0; pair < kVectors; pair += 2) {
          __m512i low[2], high[2];
#pragma GCC unroll 2
          for (int c = 0; c < 2; ++c) {
            _mm_prefetch(reinterpret_cast<const char*>(at + 4096 + 64 * (pair + c)), _MM_HINT_T0);
            const __m512i codes = _mm512_loadu_si512(at + 64 * (pair + c));
            low[c] = _mm512_and_si512(codes, mask);
            high[c] = _mm512_and_si512(_mm512_srli_epi16(codes, 4), mask);
          }
#pragma GCC unroll 12
          for (int r = 0; r < kRows; ++r) {
            const __m512i x_low = broadcast4(q + r * t.q_stride);
            const __m512i x_high = broadcast4(q + r * t.q_stride + 4);
#pragma GCC unroll 2
            for (int c = 0; c < 2; ++c) {
              dot4(sums[r][pair + c], low[c], x_low);
              dot4(sums[r][pair + c], high[c], x_high);
            }
          }
        }
      }
#pragma GCC unroll 4
      for (int c = 0; c < kVectors; ++c) {
        const int column = 16 * (first + c);
        const auto [scale, zero] = load_tail(layout, tail, column);
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
          __m512i sum = sums[r][c];
          if (layout.asymmetric)
            sum = _mm512_sub_epi32(
                sum, _mm512_mullo_epi32(zero, _mm512_set1_epi32(t.group_sums[r * n_groups + g])));
          const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
          float* y = t.y + r * t.y_stride + column;
          _mm512_storeu_ps(y, _mm512_add_ps(_mm512_loadu_ps(y), product));
        }
      }
    }
    panel = tail + layout.tail_bytes();
    group_q += 8 * n_blocks;
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < 4; ++c) {
      float* y = t.y + r * t.y_stride + 16 * c;
      _mm512_storeu_ps(y, _mm512_mul_ps(_mm512_loadu_ps(y), _mm512_set1_ps(t.row_scale[r])));
    }
}

constexpr int kMaxRows = 12;

void rows(const S4RowsArgs& t) {
  with_row_count<kMaxRows>(t.n_rows, [&](auto n) { rows_of<n.value>(t); });
}

// 16 columns of four elements: bits [shift, shift + 4) of each byte become signed bytes (q - zero) * ratio,
// plus 128. The codes as floats come out of a table, `levels`: code - 8, or the code when `zero` is taken
// off.
template <int kShift, bool kAsymmetric>
inline __m512i requantize4(__m512i codes, __m512 levels, __m512 zero, __m512 ratio) {
  __m512i w[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    // A look-up takes the lowest four bits of its index.
    __m512 q = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 8 * static_cast<unsigned>(j) + kShift), levels);
    if constexpr (kAsymmetric) q = _mm512_sub_ps(q, zero);
    w[j] = _mm512_cvtps_epi32(_mm512_mul_ps(q, ratio));
  }
  // Packing puts the bytes of four columns in the order of elements; each column wants its own together.
  const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(w[0], w[1]), _mm512_packs_epi32(w[2], w[3]));
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return _mm512_xor_si512(_mm512_shuffle_epi8(packed, order), _mm512_set1_epi8(-128));
}

template <bool kAsymmetric, bool kInTiles>
void requantize_panel(const S4RequantizeArgs& t) {
  // From a quad to the next, and from 16 columns to the next.
  constexpr ptrdiff_t kQuad_bytes = kInTiles ? kTileRow_bytes : 256;
  constexpr ptrdiff_t kColumns_bytes = kInTiles ? kTile_bytes : 64;
  const S4Layout& layout = t.layout;
  const ptrdiff_t quads = layout.padded_k() / 4;
  ptrdiff_t quad = 0;
  if (kInTiles && quads % 16 != 0)
    __builtin_memset(t.out + quads / 16 * 4 * kTile_bytes, 0, static_cast<size_t>(4 * kTile_bytes));
  const uint8_t* at = t.panel;
  uint8_t* out = t.out;
  const __m512 codes_as_floats = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 levels = kAsymmetric ? codes_as_floats : _mm512_sub_ps(codes_as_floats, _mm512_set1_ps(8));
  for (ptrdiff_t g = 0; g < layout.n_groups(); ++g) {
    const ptrdiff_t n_blocks = layout.blocks(g);
    const uint8_t* tail = at + n_blocks * 256;
    __m512 ratio[4];
    __m512 zero[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const GroupTail of = load_tail(layout, tail, 16 * c);
      const __m512 column = _mm512_loadu_ps(t.column_scale + 16 * c);
      const __mmask16 used = _mm512_cmp_ps_mask(column, _mm512_setzero_ps(), _CMP_GT_OQ);
      ratio[c] = _mm512_maskz_div_ps(used, of.scale, column);
      zero[c] = _mm512_cvtepi32_ps(of.zero);
    }
    for (ptrdiff_t b = 0; b < n_blocks; ++b, at += 256, out += 512, quad += 2) {
      if constexpr (kInTiles) out = t.out + s4_tile_at(quads, quad);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        const __m512i codes = _mm512_loadu_si512(at + 64 * c);
        uint8_t* to = out + kColumns_bytes * c;
        _mm512_storeu_si512(to, requantize4<0, kAsymmetric>(codes, levels, zero[c], ratio[c]));
        _mm512_storeu_si512(to + kQuad_bytes, requantize4<4, kAsymmetric>(codes, levels, zero[c], ratio[c]));
      }
    }
    at = tail + layout.tail_bytes();
  }
}

void requantize(const S4RequantizeArgs& t) {
  if (t.in_tiles)
    return t.layout.asymmetric ? requantize_panel<true, true>(t) : requantize_panel<false, true>(t);
  t.layout.asymmetric ? requantize_panel<true, false>(t) : requantize_panel<false, false>(t);
}

}  // namespace

extern const GemmS4Kernels kGemmS4Avx512Vnni = {"avx512_vnni", rows, requantize, kMaxRows, true};

}  // namespace triptych::kernels
