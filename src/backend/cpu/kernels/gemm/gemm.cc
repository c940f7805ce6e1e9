#include "backend/cpu/kernels/gemm/gemm.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const GemmKernels& gemm_kernels(Isa isa) {
  return first_supported<GemmKernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512, &kGemmAvx512}, {Isa::kAvx2, &kGemmAvx2},
#elif defined(__aarch64__)
    {Isa::kNeon, &kGemmNeon},
#endif
    {
      Isa::kScalar, &kGemmScalar
    }
  });
}

}  // namespace triptych::kernels
