#include "backend/cpu/kernels/simd/vec_avx512.h"
//
#include "backend/cpu/kernels/gemm/gemm_body.h"

namespace triptych::kernels {

extern const GemmKernels kGemmAvx512 = {"avx512", kTileRows, 2 * kLanes, pack, tile};

}  // namespace triptych::kernels
