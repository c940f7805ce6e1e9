// Eight lanes; rounding and division are IEEE's, so that the bits are those of the scalar version.
#include <immintrin.h>
#include <math.h>

#include "backend/cpu/kernels/quantize_weight/quantize_weight.h"

namespace triptych::kernels {
namespace {

float lowest(__m256 x) {
  __m128 v = _mm_min_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  v = _mm_min_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_min_ss(v, _mm_shuffle_ps(v, v, 1)));
}

WeightRange range(ptrdiff_t n, const float* w) {
  __m256 low = _mm256_setzero_ps();
  __m256 negated_high = _mm256_setzero_ps();
  __m256 nothing = _mm256_setzero_ps();  // x - x: zero, or NaN for what is not finite
  ptrdiff_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps(w + i);
    low = _mm256_min_ps(low, x);
    negated_high = _mm256_min_ps(negated_high, _mm256_sub_ps(_mm256_setzero_ps(), x));
    nothing = _mm256_add_ps(nothing, _mm256_sub_ps(x, x));
  }
  bool finite = _mm256_movemask_ps(_mm256_cmp_ps(nothing, nothing, _CMP_UNORD_Q)) == 0;
  WeightRange out = {lowest(low), -lowest(negated_high), true};
  for (; i < n; ++i) {
    const float x = w[i];
    finite = finite && x - x == 0;
    out.low = x < out.low ? x : out.low;
    out.high = x > out.high ? x : out.high;
  }
  out.finite = finite;
  return out;
}

void codes(const WeightCodesArgs& t) {
  const __m256 scale = _mm256_set1_ps(t.scale);
  const __m256 zero = _mm256_set1_ps(t.zero);
  const __m256 low = _mm256_set1_ps(t.low);
  const __m256 high = _mm256_set1_ps(t.high);
  const auto eight = [&](const float* w) {
    const __m256 x = _mm256_round_ps(_mm256_div_ps(_mm256_loadu_ps(w), scale),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(_mm256_add_ps(x, zero), low), high));
  };
  ptrdiff_t i = 0;
  // Packing works within halves; the permutation puts the groups of four in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (; i + 32 <= t.n; i += 32) {
    const __m256i a = _mm256_packs_epi32(eight(t.w + i), eight(t.w + i + 8));
    const __m256i b = _mm256_packs_epi32(eight(t.w + i + 16), eight(t.w + i + 24));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.codes + i),
                        _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order));
  }
  for (; i < t.n; ++i) {
    float x = nearbyintf(t.w[i] / t.scale) + t.zero;
    x = x < t.low ? t.low : x;
    x = x > t.high ? t.high : x;
    t.codes[i] = static_cast<uint8_t>(x);
  }
}

}  // namespace

extern const QuantizeWeightKernels kQuantizeWeightAvx2 = {"avx2", range, codes};

}  // namespace triptych::kernels
