// Products of 16-bit rows and panels of bytes, [quads][64 columns][4], with 32-bit sums: bytes are widened
// and multiplied in pairs (VPMADDWD), two products a lane. VPMADDUBSW would saturate: 2 * 255 * 127 exceeds
// 16 bits. Included by *_avx2.cc only.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace triptych::kernels {
namespace {

typedef long long __attribute__((may_alias, aligned(1))) UnalignedLong;

template <bool kSigned>
inline __attribute__((always_inline)) __m256i widen16(const void* bytes) {
  const __m128i v = _mm_loadu_si128(static_cast<const __m128i*>(bytes));
  return kSigned ? _mm256_cvtepi8_epi16(v) : _mm256_cvtepu8_epi16(v);
}

/// Eight columns, from the panel's byte `panel` on, of kRows rows x [kRows][kStride]: sums[r] in their order.
template <int kRows, ptrdiff_t kStride, bool kSigned>
inline __attribute__((always_inline)) void dot_columns8(const int16_t* x, const void* panel, ptrdiff_t quads,
                                                        __m256i (&sums)[kRows]) {
  __m256i halves[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) halves[r][0] = halves[r][1] = _mm256_setzero_si256();
  const char* at = static_cast<const char*>(panel);
  for (ptrdiff_t i = 0; i < quads; ++i, at += 256, x += 4) {
    const __m256i first = widen16<kSigned>(at);
    const __m256i second = widen16<kSigned>(at + 16);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256i four = _mm256_set1_epi64x(*reinterpret_cast<const UnalignedLong*>(x + r * kStride));
      halves[r][0] = _mm256_add_epi32(halves[r][0], _mm256_madd_epi16(first, four));
      halves[r][1] = _mm256_add_epi32(halves[r][1], _mm256_madd_epi16(second, four));
      // The next row begins after this one: six rows take all registers, and interleaved they would need
      // more.
      __asm__("" : "+x"(halves[r][0]), "+x"(halves[r][1]), "+r"(x));
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)  // columns 0 1 4 5 | 2 3 6 7
    sums[r] =
        _mm256_permute4x64_epi64(_mm256_hadd_epi32(halves[r][0], halves[r][1]), _MM_SHUFFLE(3, 1, 2, 0));
}

}  // namespace
}  // namespace triptych::kernels
