// Without VNNI a product of bytes takes three instructions: pairs to 16 bits, pairs of those to 32, and the
// sum.
#include "backend/cpu/kernels/simd/vec_avx512.h"
//
#include "backend/cpu/kernels/probe/probe_body.h"

namespace triptych::kernels {
namespace {

double int8_dot(long rounds, float* sink) {
  Vi acc[kChains];
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_epi32(i);
  Vi a = _mm512_set1_epi32(static_cast<int>(sink[1]));
  const Vi b = _mm512_set1_epi32(static_cast<int>(sink[2]));
  const Vi ones = _mm512_set1_epi16(1);
  for (long r = 0; r < rounds; ++r) {
    TRIPTYCH_UNROLL
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+v"(a));  // each product is made anew, as that of another row would be
      acc[i] = _mm512_add_epi32(acc[i], _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), ones));
    }
  }
  Vi sum = _mm512_setzero_si512();
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) sum = _mm512_add_epi32(sum, acc[i]);
  sink[3] = static_cast<float>(_mm512_reduce_add_epi32(sum));
  return 2.0 * kChains * 64 * static_cast<double>(rounds);
}

}  // namespace

extern const ProbeKernels kProbeAvx512 = {"avx512", fma, read, int8_dot, nullptr};

}  // namespace triptych::kernels
