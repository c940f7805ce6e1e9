#include "backend/cpu/kernels/simd/vec_avx2.h"
//
#include "backend/cpu/kernels/gemm/gemm_body.h"

namespace triptych::kernels {

extern const GemmKernels kGemmAvx2 = {"avx2", kTileRows, 2 * kLanes, pack, tile};

}  // namespace triptych::kernels
