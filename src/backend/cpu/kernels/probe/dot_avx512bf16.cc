// VDPBF16PS: 32 products of bfloat16 an instruction; VPDPBUSD as in dot_avx512vnni.cc.
#include "backend/cpu/kernels/simd/vec_avx512.h"
//
#include "backend/cpu/kernels/probe/probe_body.h"

namespace triptych::kernels {
namespace {

double bf16_dot(long rounds, float* sink) {
  Vf acc[kChains];
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) acc[i] = vset(sink[0] + static_cast<float>(i));
  const __m512bh a = _mm512_cvtne2ps_pbh(vset(sink[1]), vset(sink[1]));
  const __m512bh b = _mm512_cvtne2ps_pbh(vset(sink[2]), vset(sink[2]));
  for (long r = 0; r < rounds; ++r) {
    TRIPTYCH_UNROLL
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_dpbf16_ps(acc[i], a, b);
  }
  Vf sum = vzero();
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) sum = vadd(sum, acc[i]);
  sink[3] = vsum(sum);
  return 2.0 * kChains * 32 * static_cast<double>(rounds);
}

double int8_dot(long rounds, float* sink) { return kProbeAvx512Vnni.int8_dot(rounds, sink); }

}  // namespace

extern const ProbeKernels kProbeAvx512Bf16 = {"avx512_bf16", fma, read, int8_dot, bf16_dot};

}  // namespace triptych::kernels
