#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const GemmS4Kernels& gemm_s4_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<GemmS4Kernels>(
      features,
      {{kNeedsAvx512Vnni, &kGemmS4Avx512Vnni}, {kNeedsAvx2, &kGemmS4Avx2}, {kNeedsNothing, &kGemmS4Scalar}});
#elif defined(__aarch64__)
  return first_supported<GemmS4Kernels>(
      features,
      {{kNeedsDotprod, &kGemmS4Dotprod}, {kNeedsNeon, &kGemmS4Neon}, {kNeedsNothing, &kGemmS4Scalar}});
#else
  return first_supported<GemmS4Kernels>(features, {{kNeedsNothing, &kGemmS4Scalar}});
#endif
}

}  // namespace triptych::kernels
