#include "backend/cpu/kernels/norm/norm.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const NormKernels& norm_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<NormKernels>(
      features, {{kNeedsAvx512, &kNormAvx512}, {kNeedsAvx2, &kNormAvx2}, {kNeedsNothing, &kNormScalar}});
#elif defined(__aarch64__)
  return first_supported<NormKernels>(features, {{kNeedsNeon, &kNormNeon}, {kNeedsNothing, &kNormScalar}});
#else
  return first_supported<NormKernels>(features, {{kNeedsNothing, &kNormScalar}});
#endif
}

}  // namespace triptych::kernels
