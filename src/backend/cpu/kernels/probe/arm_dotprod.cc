// SDOT: 16 products of bytes an instruction.
#include "backend/cpu/kernels/simd/vec_neon.h"
//
#include "backend/cpu/kernels/probe/probe_body.h"

namespace triptych::kernels {
namespace {

double int8_dot(long rounds, float* sink) {
  int32x4_t acc[kChains];
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) acc[i] = vdupq_n_s32(i);
  const int8x16_t a = vdupq_n_s8(static_cast<int8_t>(sink[1]));
  const int8x16_t b = vdupq_n_s8(static_cast<int8_t>(sink[2]));
  for (long r = 0; r < rounds; ++r) {
    TRIPTYCH_UNROLL
    for (int i = 0; i < kChains; ++i) acc[i] = vdotq_s32(acc[i], a, b);
  }
  int32x4_t sum = vdupq_n_s32(0);
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) sum = vaddq_s32(sum, acc[i]);
  sink[3] = static_cast<float>(vaddvq_s32(sum));
  return 2.0 * kChains * 16 * static_cast<double>(rounds);
}

}  // namespace

extern const ProbeKernels kProbeDotprod = {"dotprod", fma, read, int8_dot, nullptr};

}  // namespace triptych::kernels
