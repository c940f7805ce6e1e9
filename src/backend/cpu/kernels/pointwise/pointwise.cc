#include "backend/cpu/kernels/pointwise/pointwise.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const PointwiseKernels& pointwise_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<PointwiseKernels>(
      features,
      {{kNeedsAvx512, &kPointwiseAvx512}, {kNeedsAvx2, &kPointwiseAvx2}, {kNeedsNothing, &kPointwiseScalar}});
#elif defined(__aarch64__)
  return first_supported<PointwiseKernels>(
      features, {{kNeedsNeon, &kPointwiseNeon}, {kNeedsNothing, &kPointwiseScalar}});
#else
  return first_supported<PointwiseKernels>(features, {{kNeedsNothing, &kPointwiseScalar}});
#endif
}

}  // namespace triptych::kernels
