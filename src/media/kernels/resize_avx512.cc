// Both passes with AVX-512 (F, BW, VL), as in resize_avx2.cc: a register holds four taps of two rows
// (horizontal) or 64 columns (vertical, the last block masked).
#include <immintrin.h>

#include "media/kernels/resize_kernels.h"

namespace triptych::resize_kernels {
namespace {

constexpr int kPairs = kMaxRows / 2;  // registers, two rows each

inline __m512i finish(__m512i low, __m512i high) noexcept {
  const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high, kSplitBits), low);
  return _mm512_srai_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(1 << (kPrecisionBits - 1))),
                           kPrecisionBits);
}

inline void store4(uint8_t* p, int value) noexcept { __builtin_memcpy(p, &value, 4); }
inline void store3(uint8_t* p, int value) noexcept { __builtin_memcpy(p, &value, 3); }

inline __m128i load16(const uint8_t* p) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// Two rows of one pixel, each spread over two quarters: R, G, B, 0 of the first row | of the second.
inline __m256i finish_pixels(__m512i low, __m512i high) noexcept {
  const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high, kSplitBits), low);
  const __m256i first = _mm512_castsi512_si256(sum);
  const __m256i second = _mm512_extracti64x4_epi64(sum, 1);
  const __m256i both = _mm256_add_epi32(_mm256_permute2x128_si256(first, second, 0x20),
                                        _mm256_permute2x128_si256(first, second, 0x31));
  return _mm256_srai_epi32(_mm256_add_epi32(both, _mm256_set1_epi32(1 << (kPrecisionBits - 1))),
                           kPrecisionBits);
}

void eight_rows(const Taps& taps, const uint8_t* const src[kMaxRows], uint8_t* const dst[kMaxRows]) noexcept {
  const __m512i to_pairs =
      _mm512_broadcast_i64x4(_mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                                              6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  const __m512i pick_low =
      _mm512_broadcast_i64x4(_mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3,  //
                                              4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7));
  const __m512i pick_high = _mm512_add_epi8(pick_low, _mm512_set1_epi8(8));
  constexpr __mmask16 kSecondRow = 0xFF00;
  const int n_groups = taps.n_taps / kGroup;
  for (int x = 0; x < taps.n_out; ++x) {
    const ptrdiff_t start = ptrdiff_t{taps.first[x]} * 3;
    const int16_t* packed = taps.packed + ptrdiff_t{x} * taps.n_taps * 2;
    __m512i low[kPairs], high[kPairs];
    for (int p = 0; p < kPairs; ++p) low[p] = high[p] = _mm512_setzero_si512();
    for (int group = 0; group < n_groups; ++group) {
      const __m512i weights =
          _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(packed + group * 8)));
      const __m512i weights_low = _mm512_shuffle_epi8(weights, pick_low);
      const __m512i weights_high = _mm512_shuffle_epi8(weights, pick_high);
      const ptrdiff_t at = start + group * (kGroup * 3);
      for (int p = 0; p < kPairs; ++p) {
        const __m512i bytes = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load16(src[2 * p] + at)),
                                                          kSecondRow, load16(src[2 * p + 1] + at));
        const __m512i pairs = _mm512_shuffle_epi8(bytes, to_pairs);
        low[p] = _mm512_add_epi32(low[p], _mm512_madd_epi16(pairs, weights_low));
        high[p] = _mm512_add_epi32(high[p], _mm512_madd_epi16(pairs, weights_high));
      }
    }
    // Quarters after packing: rows 0, 2, 4, 6 | rows 1, 3, 5, 7.
    const __m256i words0 = _mm256_packs_epi32(finish_pixels(low[0], high[0]), finish_pixels(low[1], high[1]));
    const __m256i words1 = _mm256_packs_epi32(finish_pixels(low[2], high[2]), finish_pixels(low[3], high[3]));
    const __m256i px = _mm256_packus_epi16(words0, words1);
    alignas(32) int values[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(values), px);
    const ptrdiff_t out = ptrdiff_t{x} * 3;
    if (x + 1 < taps.n_out) {
      for (int r = 0; r < kMaxRows; ++r) store4(dst[r] + out, values[(r / 2) + (r % 2) * 4]);
    } else {
      for (int r = 0; r < kMaxRows; ++r) store3(dst[r] + out, values[(r / 2) + (r % 2) * 4]);
    }
  }
}

inline void sixty_four_columns(const VerticalArgs& args, const uint8_t* src, uint8_t* dst,
                               __mmask64 mask) noexcept {
  const int count = args.taps.count[args.out_row];
  const int16_t* packed = args.taps.packed + ptrdiff_t{args.out_row} * args.taps.n_taps * 2;
  const __m512i zero = _mm512_setzero_si512();
  __m512i low[4] = {zero, zero, zero, zero};
  __m512i high[4] = {zero, zero, zero, zero};
  for (int k = 0; k < count; k += 2) {
    int pair_low, pair_high;
    const int16_t* at = packed + (k / kGroup) * 8 + (k % kGroup);
    __builtin_memcpy(&pair_low, at, 4);
    __builtin_memcpy(&pair_high, at + 4, 4);
    const __m512i weights_low = _mm512_set1_epi32(pair_low);
    const __m512i weights_high = _mm512_set1_epi32(pair_high);
    const uint8_t* row = src + k * args.src_stride;
    const uint8_t* next = k + 1 < count ? row + args.src_stride : row;  // its weight is zero then
    const __m512i a = _mm512_maskz_loadu_epi8(mask, row);
    const __m512i b = _mm512_maskz_loadu_epi8(mask, next);
    const __m512i ab_low = _mm512_unpacklo_epi8(a, b);
    const __m512i ab_high = _mm512_unpackhi_epi8(a, b);
    const __m512i pairs[4] = {_mm512_unpacklo_epi8(ab_low, zero), _mm512_unpackhi_epi8(ab_low, zero),
                              _mm512_unpacklo_epi8(ab_high, zero), _mm512_unpackhi_epi8(ab_high, zero)};
    for (int i = 0; i < 4; ++i) {
      low[i] = _mm512_add_epi32(low[i], _mm512_madd_epi16(pairs[i], weights_low));
      high[i] = _mm512_add_epi32(high[i], _mm512_madd_epi16(pairs[i], weights_high));
    }
  }
  const __m512i words0 = _mm512_packs_epi32(finish(low[0], high[0]), finish(low[1], high[1]));
  const __m512i words1 = _mm512_packs_epi32(finish(low[2], high[2]), finish(low[3], high[3]));
  _mm512_mask_storeu_epi8(dst, mask, _mm512_packus_epi16(words0, words1));
}

}  // namespace

void horizontal_avx512(const HorizontalArgs& args) noexcept {
  const uint8_t* src[kMaxRows];
  uint8_t* dst[kMaxRows];
  for (int r = 0; r < kMaxRows;
       ++r) {  // rows that are missing repeat the last one: the same bytes are written again
    const int from = r < args.n_rows ? r : args.n_rows - 1;
    src[r] = args.src[from];
    dst[r] = args.dst[from];
  }
  eight_rows(args.taps, src, dst);
}

void vertical_avx512(const VerticalArgs& args) noexcept {
  const uint8_t* src = args.src + args.taps.first[args.out_row] * args.src_stride;
  for (int column = 0; column < args.n_bytes; column += 64) {
    const int left = args.n_bytes - column;
    const __mmask64 mask = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    sixty_four_columns(args, src + column, args.dst + column, mask);
  }
}

}  // namespace triptych::resize_kernels
