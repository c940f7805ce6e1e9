#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const GemmS8Kernels& gemm_s8_kernels(Isa isa) {
  return first_supported<GemmS8Kernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512Vnni, &kGemmS8Avx512Vnni}, {Isa::kAvx2, &kGemmS8Avx2},
#endif
    {
      Isa::kScalar, &kGemmS8Scalar
    }
  });
}

}  // namespace triptych::kernels
