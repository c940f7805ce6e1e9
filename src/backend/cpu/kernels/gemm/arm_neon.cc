#include "backend/cpu/kernels/simd/vec_neon.h"
//
#include "backend/cpu/kernels/gemm/gemm_body.h"

namespace triptych::kernels {

extern const GemmKernels kGemmNeon = {"neon", kTileRows, 2 * kLanes, pack, tile};

}  // namespace triptych::kernels
