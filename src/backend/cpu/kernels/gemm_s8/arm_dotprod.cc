#include "backend/cpu/kernels/gemm_s8/arm_body.h"
#include "backend/cpu/kernels/gemm_s8/code_sums.h"

namespace triptych::kernels {

extern const GemmS8Kernels kGemmS8Dotprod = {"dotprod", quantize, tile, code_sums};

}  // namespace triptych::kernels
