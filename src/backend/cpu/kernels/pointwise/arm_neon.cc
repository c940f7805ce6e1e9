#include "backend/cpu/kernels/simd/vec_neon.h"
//
#include "backend/cpu/kernels/simd/math.h"
//
#include "backend/cpu/kernels/pointwise/pointwise_body.h"

namespace triptych::kernels {

extern const PointwiseKernels kPointwiseNeon = {"neon", epilogue, gated, add, scale, rotate_half};

}  // namespace triptych::kernels
