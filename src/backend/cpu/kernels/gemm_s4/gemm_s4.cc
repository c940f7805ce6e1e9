#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const GemmS4Kernels& gemm_s4_kernels(Isa isa) {
  return first_supported<GemmS4Kernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512Vnni, &kGemmS4Avx512Vnni}, {Isa::kAvx2, &kGemmS4Avx2},
#elif defined(__aarch64__)
    {Isa::kDotprod, &kGemmS4Dotprod},    {Isa::kNeon, &kGemmS4Neon},
#endif
    {
      Isa::kScalar, &kGemmS4Scalar
    }
  });
}

}  // namespace triptych::kernels
