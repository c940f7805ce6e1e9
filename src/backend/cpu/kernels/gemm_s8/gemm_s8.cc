#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const GemmS8Kernels& gemm_s8_kernels(Isa isa) {
  return first_supported<GemmS8Kernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512Vnni, &kGemmS8Avx512Vnni}, {Isa::kAvx2, &kGemmS8Avx2},
#elif defined(__aarch64__)
    {Isa::kI8mm, &kGemmS8I8mm},    {Isa::kDotprod, &kGemmS8Dotprod},    {Isa::kNeon, &kGemmS8Neon},
#endif
    {
      Isa::kScalar, &kGemmS8Scalar
    }
  });
}

}  // namespace triptych::kernels
