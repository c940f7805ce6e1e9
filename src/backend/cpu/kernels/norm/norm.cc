#include "backend/cpu/kernels/norm/norm.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const NormKernels& norm_kernels(Isa isa) {
  return first_supported<NormKernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512, &kNormAvx512}, {Isa::kAvx2, &kNormAvx2},
#elif defined(__aarch64__)
    {Isa::kNeon, &kNormNeon},
#endif
    {
      Isa::kScalar, &kNormScalar
    }
  });
}

}  // namespace triptych::kernels
