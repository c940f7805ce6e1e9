#include "backend/cpu/kernels/simd/vec_avx2.h"
//
#include "backend/cpu/kernels/gemv/gemv_body.h"

namespace triptych::kernels {

extern const GemvKernels kGemvAvx2 = {"avx2", kLanes, kMaxVectors, gemv};

}  // namespace triptych::kernels
