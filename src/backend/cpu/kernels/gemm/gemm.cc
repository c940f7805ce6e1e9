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

const GemmKernels* gemm_bf16_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Bf16) return &kGemmBf16Avx512;
#endif
  static_cast<void>(isa);
  return nullptr;
}

}  // namespace triptych::kernels
