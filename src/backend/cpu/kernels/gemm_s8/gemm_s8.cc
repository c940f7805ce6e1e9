#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const GemmS8Kernels& gemm_s8_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<GemmS8Kernels>(
      features,
      {{kNeedsAvx512Vnni, &kGemmS8Avx512Vnni}, {kNeedsAvx2, &kGemmS8Avx2}, {kNeedsNothing, &kGemmS8Scalar}});
#elif defined(__aarch64__)
  return first_supported<GemmS8Kernels>(features, {{kNeedsI8mm, &kGemmS8I8mm},
                                                   {kNeedsDotprod, &kGemmS8Dotprod},
                                                   {kNeedsNeon, &kGemmS8Neon},
                                                   {kNeedsNothing, &kGemmS8Scalar}});
#else
  return first_supported<GemmS8Kernels>(features, {{kNeedsNothing, &kGemmS8Scalar}});
#endif
}

const GemmS8Kernels* gemm_s8_tile_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  if (features.has_all(kNeedsAmxInt8)) return &kGemmS8AmxInt8;
#endif
  static_cast<void>(features);
  return nullptr;
}

}  // namespace triptych::kernels
