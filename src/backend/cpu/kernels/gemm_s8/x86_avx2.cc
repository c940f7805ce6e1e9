#include <immintrin.h>

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/gemm_s8/int8_sums.h"
#include "backend/cpu/kernels/simd/dot16_avx2.h"
#include "backend/cpu/kernels/simd/row_count.h"

namespace triptych::kernels {
namespace {

typedef int __attribute__((may_alias, aligned(1))) UnalignedInt;

// Rows are widened a piece of K at a time, which costs little beside 64 columns of products.
constexpr ptrdiff_t kPieceQuads = 128;

inline void widen_row(const int8_t* q, ptrdiff_t quads, int16_t* out) {
  ptrdiff_t i = 0;
  for (; i + 4 <= quads; i += 4)
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + 4 * i), widen16<true>(q + 4 * i));
  for (ptrdiff_t j = 4 * i; j < 4 * quads; ++j) out[j] = q[j];
}

template <int kRows>
void tile_rows(const S8TileArgs& t) {
  alignas(32) int16_t x[kRows][4 * kPieceQuads];
  alignas(32) int sums[kRows][kS8PanelWidth] = {};
  for (ptrdiff_t begin = 0; begin < t.quads; begin += kPieceQuads) {
    const ptrdiff_t quads = t.quads - begin < kPieceQuads ? t.quads - begin : kPieceQuads;
    for (int r = 0; r < kRows; ++r) widen_row(t.q + r * t.q_stride + 4 * begin, quads, x[r]);
    const uint8_t* panel = t.panel + begin * kS8PanelWidth * 4;
    for (int c = 0; c < kS8PanelWidth; c += 8) {
      __m256i more[kRows];
      dot_columns8<kRows, 4 * kPieceQuads, false>(x[0], panel + 4 * c, quads, more);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        auto* sum = reinterpret_cast<__m256i*>(sums[r] + c);
        _mm256_store_si256(sum, _mm256_add_epi32(_mm256_load_si256(sum), more[r]));
      }
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kS8PanelWidth; c += 8) {
      const __m256i sum = _mm256_sub_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(sums[r] + c)),
                                           _mm256_set1_epi32(128 * t.row_sum[r]));
      const __m256 scale = _mm256_mul_ps(_mm256_set1_ps(t.row_scale[r]), _mm256_loadu_ps(t.column_scale + c));
      _mm256_storeu_ps(t.y + r * t.y_stride + c, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale));
    }
}

void tile(const S8TileArgs& t) {
  with_row_count<6>(t.n_rows, [&](auto n) { tile_rows<n.value>(t); });
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
    if (t.square_sum != nullptr) *t.square_sum = 0;
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
  if (t.square_sum != nullptr) *t.square_sum = square_sum(t.q, t.k);
}

}  // namespace

extern const GemmS8Kernels kGemmS8Avx2 = {"avx2", quantize, tile, int8_sums};

}  // namespace triptych::kernels
