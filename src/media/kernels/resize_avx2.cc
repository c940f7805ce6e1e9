// Both passes with AVX2. Two taps are one vpmaddwd on (px, px') x (weight, weight'), once for the low and
// once for the high parts of the weights; low and high sums are put together at the end.
#include <immintrin.h>

#include "media/kernels/resize_kernels.h"

namespace triptych::resize_kernels {
namespace {

constexpr int kRows = 4;  // rows at once: 8 accumulators, and the weights are expanded once for all of them

// ((high << 12) + low + 2^21) >> 22
inline __m256i finish(__m256i low, __m256i high) noexcept {
  const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, kSplitBits), low);
  return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << (kPrecisionBits - 1))),
                           kPrecisionBits);
}

// Adds the two 128-bit halves, then rounds: one pixel as four 32-bit lanes R, G, B, 0.
inline __m128i finish_pixel(__m256i low, __m256i high) noexcept {
  const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, kSplitBits), low);
  const __m128i both = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  return _mm_srai_epi32(_mm_add_epi32(both, _mm_set1_epi32(1 << (kPrecisionBits - 1))), kPrecisionBits);
}

inline void store4(uint8_t* p, int value) noexcept { __builtin_memcpy(p, &value, 4); }
inline void store3(uint8_t* p, int value) noexcept { __builtin_memcpy(p, &value, 3); }

// Four rows. All but the last pixel of a row are written with one byte too many, which the next pixel
// overwrites.
void four_rows(const Taps& taps, const uint8_t* const src[kRows], uint8_t* const dst[kRows]) noexcept {
  // From 4 pixels r0 g0 b0 r1 ... in both halves to 16-bit pairs: (r0 r1)(g0 g1)(b0 b1)(0 0) | the same of 2
  // and 3.
  const __m256i to_pairs = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                                            6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const __m256i pick_low = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3,  //
                                            4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
  const __m256i pick_high = _mm256_add_epi8(pick_low, _mm256_set1_epi8(8));
  const int n_groups = taps.n_taps / kGroup;
  for (int x = 0; x < taps.n_out; ++x) {
    const ptrdiff_t start = ptrdiff_t{taps.first[x]} * 3;
    const int16_t* packed = taps.packed + ptrdiff_t{x} * taps.n_taps * 2;
    __m256i low[kRows], high[kRows];
    for (int r = 0; r < kRows; ++r) low[r] = high[r] = _mm256_setzero_si256();
    for (int group = 0; group < n_groups; ++group) {
      const __m256i weights =
          _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(packed + group * 8)));
      const __m256i weights_low = _mm256_shuffle_epi8(weights, pick_low);
      const __m256i weights_high = _mm256_shuffle_epi8(weights, pick_high);
      for (int r = 0; r < kRows; ++r) {
        const __m128i bytes =
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(src[r] + start + group * (kGroup * 3)));
        const __m256i pairs = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), to_pairs);
        low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(pairs, weights_low));
        high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(pairs, weights_high));
      }
    }
    const __m128i rows01 = _mm_packs_epi32(finish_pixel(low[0], high[0]), finish_pixel(low[1], high[1]));
    const __m128i rows23 = _mm_packs_epi32(finish_pixel(low[2], high[2]), finish_pixel(low[3], high[3]));
    const __m128i px = _mm_packus_epi16(rows01, rows23);
    const ptrdiff_t at = ptrdiff_t{x} * 3;
    if (x + 1 < taps.n_out) {
      store4(dst[0] + at, _mm_cvtsi128_si32(px));
      store4(dst[1] + at, _mm_extract_epi32(px, 1));
      store4(dst[2] + at, _mm_extract_epi32(px, 2));
      store4(dst[3] + at, _mm_extract_epi32(px, 3));
    } else {
      store3(dst[0] + at, _mm_cvtsi128_si32(px));
      store3(dst[1] + at, _mm_extract_epi32(px, 1));
      store3(dst[2] + at, _mm_extract_epi32(px, 2));
      store3(dst[3] + at, _mm_extract_epi32(px, 3));
    }
  }
}

// 32 columns of one output row, read at src and written at dst.
inline void thirty_two_columns(const VerticalArgs& args, const uint8_t* src, uint8_t* dst) noexcept {
  const int count = args.taps.count[args.out_row];
  const int16_t* packed = args.taps.packed + ptrdiff_t{args.out_row} * args.taps.n_taps * 2;
  const __m256i zero = _mm256_setzero_si256();
  __m256i low[4] = {zero, zero, zero, zero};
  __m256i high[4] = {zero, zero, zero, zero};
  for (int k = 0; k < count; k += 2) {
    int pair_low, pair_high;
    const int16_t* at = packed + (k / kGroup) * 8 + (k % kGroup);
    __builtin_memcpy(&pair_low, at, 4);
    __builtin_memcpy(&pair_high, at + 4, 4);
    const __m256i weights_low = _mm256_set1_epi32(pair_low);
    const __m256i weights_high = _mm256_set1_epi32(pair_high);
    const uint8_t* row = src + k * args.src_stride;
    const uint8_t* next = k + 1 < count ? row + args.src_stride : row;  // its weight is zero then
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(next));
    const __m256i ab_low = _mm256_unpacklo_epi8(a, b);
    const __m256i ab_high = _mm256_unpackhi_epi8(a, b);
    const __m256i pairs[4] = {_mm256_unpacklo_epi8(ab_low, zero), _mm256_unpackhi_epi8(ab_low, zero),
                              _mm256_unpacklo_epi8(ab_high, zero), _mm256_unpackhi_epi8(ab_high, zero)};
    for (int i = 0; i < 4; ++i) {
      low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(pairs[i], weights_low));
      high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(pairs[i], weights_high));
    }
  }
  const __m256i words0 = _mm256_packs_epi32(finish(low[0], high[0]), finish(low[1], high[1]));
  const __m256i words1 = _mm256_packs_epi32(finish(low[2], high[2]), finish(low[3], high[3]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), _mm256_packus_epi16(words0, words1));
}

}  // namespace

void horizontal_avx2(const HorizontalArgs& args) noexcept {
  for (int row = 0; row < args.n_rows; row += kRows) {
    const uint8_t* src[kRows];
    uint8_t* dst[kRows];
    for (int r = 0; r < kRows;
         ++r) {  // rows that are missing repeat the last one: the same bytes are written again
      const int from = row + r < args.n_rows ? row + r : args.n_rows - 1;
      src[r] = args.src[from];
      dst[r] = args.dst[from];
    }
    four_rows(args.taps, src, dst);
  }
}

void vertical_avx2(const VerticalArgs& args) noexcept {
  if (args.n_bytes < 32) return vertical_scalar(args);
  const uint8_t* src = args.src + args.taps.first[args.out_row] * args.src_stride;
  int column = 0;
  for (; column + 32 <= args.n_bytes; column += 32) thirty_two_columns(args, src + column, args.dst + column);
  if (column < args.n_bytes) {  // the last block overlaps the one before
    column = args.n_bytes - 32;
    thirty_two_columns(args, src + column, args.dst + column);
  }
}

}  // namespace triptych::resize_kernels
