#include "backend/cpu/kernels/gemv/gemv.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const GemvKernels& gemv_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<GemvKernels>(
      features, {{kNeedsAvx512, &kGemvAvx512}, {kNeedsAvx2, &kGemvAvx2}, {kNeedsNothing, &kGemvScalar}});
#elif defined(__aarch64__)
  return first_supported<GemvKernels>(features, {{kNeedsNeon, &kGemvNeon}, {kNeedsNothing, &kGemvScalar}});
#else
  return first_supported<GemvKernels>(features, {{kNeedsNothing, &kGemvScalar}});
#endif
}

}  // namespace triptych::kernels
