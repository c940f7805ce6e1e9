#include "backend/cpu/kernels/quantize_weight/quantize_weight.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const QuantizeWeightKernels& quantize_weight_kernels(Isa isa) {
  return first_supported<QuantizeWeightKernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx2, &kQuantizeWeightAvx2},
#endif
    {
      Isa::kScalar, &kQuantizeWeightScalar
    }
  });
}

}  // namespace triptych::kernels
