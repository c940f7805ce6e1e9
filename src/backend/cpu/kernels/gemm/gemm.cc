#include "backend/cpu/kernels/gemm/gemm.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const GemmKernels& gemm_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<GemmKernels>(
      features, {{kNeedsAvx512, &kGemmAvx512}, {kNeedsAvx2, &kGemmAvx2}, {kNeedsNothing, &kGemmScalar}});
#elif defined(__aarch64__)
  return first_supported<GemmKernels>(features, {{kNeedsNeon, &kGemmNeon}, {kNeedsNothing, &kGemmScalar}});
#else
  return first_supported<GemmKernels>(features, {{kNeedsNothing, &kGemmScalar}});
#endif
}

const GemmKernels* gemm_bf16_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  if (features.has_all(kNeedsAmxBf16)) return &kGemmBf16Amx;
  if (features.has_all(kNeedsAvx512Bf16)) return &kGemmBf16Avx512;
#endif
  static_cast<void>(features);
  return nullptr;
}

}  // namespace triptych::kernels
