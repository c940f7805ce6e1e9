// VPDPBUSD: 64 products of bytes an instruction.
#include "backend/cpu/kernels/simd/vec_avx512.h"
//
#include "backend/cpu/kernels/probe/probe_body.h"

namespace triptych::kernels {
namespace {

double int8_dot(long rounds, float* sink) {
  Vi acc[kChains];
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_epi32(i);
  const Vi a = _mm512_set1_epi32(static_cast<int>(sink[1]));
  const Vi b = _mm512_set1_epi32(static_cast<int>(sink[2]));
  for (long r = 0; r < rounds; ++r) {
    TRIPTYCH_UNROLL
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_dpbusd_epi32(acc[i], a, b);
  }
  Vi sum = _mm512_setzero_si512();
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) sum = _mm512_add_epi32(sum, acc[i]);
  sink[3] = static_cast<float>(_mm512_reduce_add_epi32(sum));
  return 2.0 * kChains * 64 * static_cast<double>(rounds);
}

}  // namespace

extern const ProbeKernels kProbeAvx512Vnni = {"avx512_vnni", fma, read, int8_dot, nullptr};

}  // namespace triptych::kernels
