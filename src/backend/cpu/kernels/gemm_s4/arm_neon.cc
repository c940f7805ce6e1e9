#include "backend/cpu/kernels/gemm_s4/arm_body.h"

namespace triptych::kernels {

extern const GemmS4Kernels kGemmS4Neon = {"neon", rows, requantize};

}  // namespace triptych::kernels
