#include "backend/cpu/kernels/quantize_weight/quantize_weight.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const QuantizeWeightKernels& quantize_weight_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<QuantizeWeightKernels>(
      features, {{kNeedsAvx2, &kQuantizeWeightAvx2}, {kNeedsNothing, &kQuantizeWeightScalar}});
#else
  return first_supported<QuantizeWeightKernels>(features, {{kNeedsNothing, &kQuantizeWeightScalar}});
#endif
}

}  // namespace triptych::kernels
