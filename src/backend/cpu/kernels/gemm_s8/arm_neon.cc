#include "backend/cpu/kernels/gemm_s8/arm_body.h"

namespace triptych::kernels {

extern const GemmS8Kernels kGemmS8Neon = {"neon", quantize, tile};

}  // namespace triptych::kernels
