// Without VNNI a product of bytes takes three instructions: pairs to 16 bits, pairs of those to 32, and the
// sum.
#include "backend/cpu/kernels/simd/vec_avx2.h"
//
#include "backend/cpu/kernels/probe/probe_body.h"

namespace triptych::kernels {
namespace {

double int8_dot(long rounds, float* sink) {
  Vi acc[kChains];
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_set1_epi32(i);
  Vi a = _mm256_set1_epi32(static_cast<int>(sink[1]));
  const Vi b = _mm256_set1_epi32(static_cast<int>(sink[2]));
  const Vi ones = _mm256_set1_epi16(1);
  for (long r = 0; r < rounds; ++r) {
    TRIPTYCH_UNROLL
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+x"(a));  // each product is made anew, as that of another row would be
      acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
  Vi sum = _mm256_setzero_si256();
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) sum = _mm256_add_epi32(sum, acc[i]);
  sink[3] = static_cast<float>(_mm256_extract_epi32(sum, 0));
  return 2.0 * kChains * 32 * static_cast<double>(rounds);
}

}  // namespace

extern const ProbeKernels kProbeAvx2 = {"avx2", fma, read, int8_dot, nullptr};

}  // namespace triptych::kernels
