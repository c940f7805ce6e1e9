#include "backend/cpu/kernels/simd/vec_avx512.h"
//
#include "backend/cpu/kernels/gemv/gemv_body.h"

namespace triptych::kernels {

extern const GemvKernels kGemvAvx512 = {"avx512", kLanes, kMaxVectors, gemv};

}  // namespace triptych::kernels
