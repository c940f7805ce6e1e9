#include "backend/cpu/kernels/gemm_s4/arm_body.h"

namespace triptych::kernels {

extern const GemmS4Kernels kGemmS4Dotprod = {"dotprod", rows, requantize};

}  // namespace triptych::kernels
