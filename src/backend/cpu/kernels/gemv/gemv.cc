#include "backend/cpu/kernels/gemv/gemv.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const GemvKernels& gemv_kernels(Isa isa) {
  return first_supported<GemvKernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512, &kGemvAvx512}, {Isa::kAvx2, &kGemvAvx2},
#elif defined(__aarch64__)
    {Isa::kNeon, &kGemvNeon},
#endif
    {
      Isa::kScalar, &kGemvScalar
    }
  });
}

}  // namespace triptych::kernels
