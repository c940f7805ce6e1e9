#include "backend/cpu/kernels/simd/vec_neon.h"
//
#include "backend/cpu/kernels/gemv/gemv_body.h"

namespace triptych::kernels {

extern const GemvKernels kGemvNeon = {"neon", kLanes, kMaxVectors, gemv};

}  // namespace triptych::kernels
