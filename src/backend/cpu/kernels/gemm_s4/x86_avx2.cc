// Codes are unsigned bytes to begin with, so VPMADDUBSW multiplies them: a pair is at most 2 * 15 * 127, and
// the four pairs that meet in a 16-bit lane before it is widened (two blocks, low and high codes) at most
// 15240. Requantizing looks bytes up, as a column has only sixteen values in a group.
#include <immintrin.h>

#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"
#include "backend/cpu/kernels/simd/row_count.h"

namespace triptych::kernels {
namespace {

typedef int __attribute__((may_alias, aligned(1))) UnalignedInt;

constexpr ptrdiff_t kBlockBytes = 4 * kS4PanelWidth;
constexpr ptrdiff_t kPrefetchBytes = 4096;

inline __m256i load(const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
inline __m256i broadcast4(const int8_t* at) {
  return _mm256_set1_epi32(*reinterpret_cast<const UnalignedInt*>(at));
}
inline __m256i low_codes(__m256i codes) { return _mm256_and_si256(codes, _mm256_set1_epi8(15)); }
inline __m256i high_codes(__m256i codes) { return low_codes(_mm256_srli_epi16(codes, 4)); }

// kBlocks blocks of 8 * kVectors columns and kRows rows, added to sums.
template <int kRows, int kVectors, int kBlocks>
inline __attribute__((always_inline)) void add_blocks(__m256i (&sums)[kRows][kVectors], const uint8_t* at,
                                                      const int8_t* q, ptrdiff_t q_stride) {
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) {
    __m256i codes[kBlocks][2];
#pragma GCC unroll 2
    for (int b = 0; b < kBlocks; ++b) {
      const uint8_t* block = at + b * kBlockBytes + 32 * c;
      if (c % 2 == 0) _mm_prefetch(reinterpret_cast<const char*>(block + kPrefetchBytes), _MM_HINT_T0);
      codes[b][0] = low_codes(load(block));
      codes[b][1] = high_codes(load(block));
    }
    const int8_t* row = q;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r, row += q_stride) {
      __m256i words = _mm256_setzero_si256();
#pragma GCC unroll 2
      for (int b = 0; b < kBlocks; ++b) {
        words = _mm256_add_epi16(words, _mm256_maddubs_epi16(codes[b][0], broadcast4(row + 8 * b)));
        words = _mm256_add_epi16(words, _mm256_maddubs_epi16(codes[b][1], broadcast4(row + 8 * b + 4)));
      }
      sums[r][c] = _mm256_add_epi32(sums[r][c], _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
      // The next row begins after this one's sum: interleaved, their parts would not fit in the registers.
      if constexpr (kRows > 1) __asm__("" : "+x"(sums[r][c]), "+r"(row));
    }
  }
}

// One group of 8 * kVectors columns from column `first` on: y += scale * (sums - zero * total).
template <int kRows, int kVectors>
void group_columns(const S4RowsArgs& t, ptrdiff_t g, int first, const uint8_t* group,
                   float (*y)[kS4PanelWidth]) {
  const S4Layout& layout = t.layout;
  const ptrdiff_t n_blocks = layout.blocks(g);
  __m256i sums[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kVectors; ++c) sums[r][c] = _mm256_setzero_si256();
  const uint8_t* at = group + 4 * first;
  const int8_t* q = t.q + g * layout.group;
  ptrdiff_t b = 0;
  for (; b + 2 <= n_blocks; b += 2, at += 2 * kBlockBytes, q += 16)
    add_blocks<kRows, kVectors, 2>(sums, at, q, t.q_stride);
  if (b < n_blocks) add_blocks<kRows, kVectors, 1>(sums, at, q, t.q_stride);
  const uint8_t* tail = group + n_blocks * kBlockBytes;
#pragma GCC unroll 8
  for (int c = 0; c < kVectors; ++c) {
    const int column = first + 8 * c;
    const __m256 scale =
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tail + 2 * column)));
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const int total = t.group_sums[r * layout.n_groups() + g];
      __m256i shift = _mm256_set1_epi32(8 * total);
      if (layout.asymmetric) {
        const auto* zeros = reinterpret_cast<const __m128i*>(tail + 2 * kS4PanelWidth + column);
        shift = _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64(zeros)), _mm256_set1_epi32(total));
      }
      const __m256 sum = _mm256_cvtepi32_ps(_mm256_sub_epi32(sums[r][c], shift));
      _mm256_store_ps(y[r] + column, _mm256_add_ps(_mm256_load_ps(y[r] + column), _mm256_mul_ps(sum, scale)));
    }
  }
}

// A group is multiplied by slices of columns while it is in the first cache, so that memory sees one stream.
template <int kRows>
void panel_rows(const S4RowsArgs& t) {
  // Of more columns the sums, codes and products would not fit in 16 registers (tools/check_spills.py).
  constexpr int kVectors = kRows == 1 ? 4 : 1;
  alignas(32) float y[kRows][kS4PanelWidth] = {};
  const S4Layout& layout = t.layout;
  const uint8_t* group = t.panel;
  for (ptrdiff_t g = 0; g < layout.n_groups(); ++g) {
    for (int first = 0; first < kS4PanelWidth; first += 8 * kVectors)
      group_columns<kRows, kVectors>(t, g, first, group, y);
    group += layout.blocks(g) * kBlockBytes + layout.tail_bytes();
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kS4PanelWidth; c += 8)
      _mm256_storeu_ps(t.y + r * t.y_stride + c,
                       _mm256_mul_ps(_mm256_load_ps(y[r] + c), _mm256_set1_ps(t.row_scale[r])));
}

void rows(const S4RowsArgs& t) {
  with_row_count<6>(t.n_rows, [&](auto n) { panel_rows<n.value>(t); });
}

// In each half of the vectors: 32-bit element j of v[i] <-> element i of v[j].
inline void transpose4(__m256i (&v)[4]) {
  const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]);
  const __m256i b = _mm256_unpackhi_epi32(v[0], v[1]);
  const __m256i c = _mm256_unpacklo_epi32(v[2], v[3]);
  const __m256i d = _mm256_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm256_unpacklo_epi64(a, c);
  v[1] = _mm256_unpackhi_epi64(a, c);
  v[2] = _mm256_unpacklo_epi64(b, d);
  v[3] = _mm256_unpackhi_epi64(b, d);
}

// What the sixteen codes of 8 columns become: table[i] holds those of column i in its lower and of column
// 4 + i in its upper half. A code that no weight has may go beyond 8 bits; it wraps.
inline void make_tables(__m256 zero, __m256 ratio, __m256i (&table)[4]) {
  const __m256i byte = _mm256_set1_epi16(255);
  const __m256i by_column =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  __m256 steps[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) steps[j] = _mm256_sub_ps(_mm256_set1_ps(static_cast<float>(j)), zero);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    __m256i w[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      w[j] = _mm256_cvtps_epi32(_mm256_mul_ps(steps[j], ratio));
      steps[j] = _mm256_add_ps(steps[j], _mm256_set1_ps(4));
    }
    const __m256i first = _mm256_and_si256(_mm256_packs_epi32(w[0], w[1]), byte);
    const __m256i second = _mm256_and_si256(_mm256_packs_epi32(w[2], w[3]), byte);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_packus_epi16(first, second), by_column);
    table[i] = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
  }
  transpose4(table);
}

// Four blocks (or the last kBlocks of a group) of 8 columns.
template <int kBlocks>
inline void look_up(const __m256i (&table)[4], const uint8_t* at, uint8_t* out) {
  __m256i codes[4];
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) codes[b] = b < kBlocks ? load(at + b * kBlockBytes) : _mm256_setzero_si256();
  transpose4(codes);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    __m256i bytes[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      bytes[i] = _mm256_shuffle_epi8(table[i], half == 0 ? low_codes(codes[i]) : high_codes(codes[i]));
    transpose4(bytes);
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + (2 * b + half) * kBlockBytes), bytes[b]);
  }
}

void requantize(const S4RequantizeArgs& t) {
  const S4Layout& layout = t.layout;
  const uint8_t* group = t.panel;
  uint8_t* group_out = t.out;
  for (ptrdiff_t g = 0; g < layout.n_groups(); ++g) {
    const ptrdiff_t n_blocks = layout.blocks(g);
    const uint8_t* tail = group + n_blocks * kBlockBytes;
    for (int column = 0; column < kS4PanelWidth; column += 8) {
      const __m256 scale =
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tail + 2 * column)));
      const __m256 column_scale = _mm256_loadu_ps(t.column_scale + column);
      const __m256 used = _mm256_cmp_ps(column_scale, _mm256_setzero_ps(), _CMP_GT_OQ);
      const auto* zeros = reinterpret_cast<const __m128i*>(tail + 2 * kS4PanelWidth + column);
      const __m256 zero = layout.asymmetric ? _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(zeros)))
                                            : _mm256_set1_ps(8);
      __m256i table[4];
      make_tables(zero, _mm256_and_ps(used, _mm256_div_ps(scale, column_scale)), table);
      const uint8_t* at = group + 4 * column;
      uint8_t* out = group_out + 4 * column;
      ptrdiff_t b = 0;
      for (; b + 4 <= n_blocks; b += 4, at += 4 * kBlockBytes, out += 8 * kBlockBytes)
        look_up<4>(table, at, out);
      switch (n_blocks - b) {
        case 1:
          look_up<1>(table, at, out);
          break;
        case 2:
          look_up<2>(table, at, out);
          break;
        case 3:
          look_up<3>(table, at, out);
          break;
        default:
          break;
      }
    }
    group = tail + layout.tail_bytes();
    group_out += 2 * n_blocks * kBlockBytes;
  }
}

}  // namespace

extern const GemmS4Kernels kGemmS4Avx2 = {"avx2", rows, requantize, 6};

}  // namespace triptych::kernels
