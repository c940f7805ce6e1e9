// Without VPDPBUSD bytes are widened to 16 bits and multiplied in pairs (VPMADDWD): VPMADDUBSW would
// saturate, as 2 * 255 * 127 exceeds 16 bits.
#include <immintrin.h>

#include "backend/cpu/kernels/gemm_s8/code_sums.h"
#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"

namespace triptych::kernels {
namespace {

typedef int __attribute__((may_alias, aligned(1))) UnalignedInt;

// 8 columns of up to three rows: six sums, each column in two neighbouring lanes.
template <int kRows>
void columns8(const S8TileArgs& t, int first) {
  __m256i sums[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
  const uint8_t* w = t.panel + first * 4;
  for (ptrdiff_t i = 0; i < t.quads; ++i, w += kS8PanelWidth * 4) {
    const __m256i low = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
    const __m256i high = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 16)));
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const int four = *reinterpret_cast<const UnalignedInt*>(t.q + r * t.q_stride + 4 * i);
      const __m256i q = _mm256_cvtepi8_epi16(_mm_set1_epi32(four));
      sums[r][0] = _mm256_add_epi32(sums[r][0], _mm256_madd_epi16(low, q));
      sums[r][1] = _mm256_add_epi32(sums[r][1], _mm256_madd_epi16(high, q));
    }
  }
  const __m256 column_scale = _mm256_loadu_ps(t.column_scale + first);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const __m256i pairs = _mm256_hadd_epi32(sums[r][0], sums[r][1]);  // columns 0 1 4 5 | 2 3 6 7
    const __m256i sum = _mm256_sub_epi32(_mm256_permute4x64_epi64(pairs, _MM_SHUFFLE(3, 1, 2, 0)),
                                         _mm256_set1_epi32(128 * t.row_sum[r]));
    const __m256 scale = _mm256_mul_ps(_mm256_set1_ps(t.row_scale[r]), column_scale);
    _mm256_storeu_ps(t.y + r * t.y_stride + first, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale));
  }
}

template <int kRows>
void rows(const S8TileArgs& t) {
  for (int c = 0; c < kS8PanelWidth; c += 8) columns8<kRows>(t, c);
}

// Three rows at a time: with more, compilers keep sums on the stack (16 registers; tools/check_spills.py).
void tile(const S8TileArgs& t) {
  constexpr int kAtOnce = 3;
  for (int r = 0; r < t.n_rows; r += kAtOnce) {
    S8TileArgs part = t;
    part.n_rows = t.n_rows - r < kAtOnce ? t.n_rows - r : kAtOnce;
    part.q += r * t.q_stride;
    part.row_scale += r;
    part.row_sum += r;
    part.y += r * t.y_stride;
    switch (part.n_rows) {
      case 1:
        rows<1>(part);
        break;
      case 2:
        rows<2>(part);
        break;
      default:
        rows<3>(part);
    }
  }
}

// Magnitudes compare as integers, and infinity and NaN are the largest.
int largest_magnitude(const S8QuantizeArgs& t) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_setzero_si256();
  ptrdiff_t i = 0;
  for (; i + 8 <= t.k; i += 8)
    largest =
        _mm256_max_epi32(largest, _mm256_and_si256(mask, _mm256_castps_si256(_mm256_loadu_ps(t.x + i))));
  int lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), largest);
  int out = 0;
  for (int lane = 0; lane < 8; ++lane) out = lanes[lane] > out ? lanes[lane] : out;
  for (; i < t.k; ++i) {
    const int bits = *reinterpret_cast<const UnalignedInt*>(t.x + i) & 0x7fffffff;
    out = bits > out ? bits : out;
  }
  return out;
}

void quantize(const S8QuantizeArgs& t) {
  const int bits = largest_magnitude(t);
  const ptrdiff_t padded = 4 * s8_quads(t.k);
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  *t.sum = 0;
  *t.scale = bits < 0x7f800000 ? largest / 127.0F : __builtin_nanf("");
  // Below the smallest normal number 127 / largest would be infinite.
  const bool nothing = bits >= 0x7f800000 || largest < 1e-36F;
  const float inverse = nothing ? 0.0F : 127.0F / largest;
  if (nothing) {
    for (ptrdiff_t j = 0; j < padded; ++j) t.q[j] = 0;
    return;
  }
  const __m256 factor = _mm256_set1_ps(inverse);
  const __m256i low = _mm256_set1_epi32(-127);
  const __m256i high = _mm256_set1_epi32(127);
  __m256i total = _mm256_setzero_si256();
  ptrdiff_t i = 0;
  for (; i + 8 <= t.k; i += 8) {
    __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(t.x + i), factor));
    q = _mm256_min_epi32(_mm256_max_epi32(q, low), high);
    total = _mm256_add_epi32(total, q);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(t.q + i), _mm_packs_epi16(words, words));
  }
  int lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), total);
  int sum = 0;
  for (int lane = 0; lane < 8; ++lane) sum += lanes[lane];
  for (; i < t.k; ++i) {
    int q = _mm_cvtss_si32(_mm_set_ss(t.x[i] * inverse));
    q = q < -127 ? -127 : q > 127 ? 127 : q;
    t.q[i] = static_cast<int8_t>(q);
    sum += q;
  }
  for (; i < padded; ++i) t.q[i] = 0;
  *t.sum = sum;
}

}  // namespace

extern const GemmS8Kernels kGemmS8Avx2 = {"avx2", quantize, tile, code_sums};

}  // namespace triptych::kernels
