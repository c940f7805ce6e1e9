#include "backend/cpu/kernels/pointwise/pointwise.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const PointwiseKernels& pointwise_kernels(Isa isa) {
  return first_supported<PointwiseKernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512, &kPointwiseAvx512}, {Isa::kAvx2, &kPointwiseAvx2},
#elif defined(__aarch64__)
    {Isa::kNeon, &kPointwiseNeon},
#endif
    {
      Isa::kScalar, &kPointwiseScalar
    }
  });
}

}  // namespace triptych::kernels
