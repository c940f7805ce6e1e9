#include "backend/cpu/kernels/gemm_s8/arm_body.h"
#include "backend/cpu/kernels/gemm_s8/int8_sums.h"

namespace triptych::kernels {

extern const GemmS8Kernels kGemmS8Dotprod = {"dotprod", quantize, tile, int8_sums};

}  // namespace triptych::kernels
