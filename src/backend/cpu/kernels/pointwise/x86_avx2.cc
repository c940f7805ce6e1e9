#include "backend/cpu/kernels/simd/vec_avx2.h"
//
#include "backend/cpu/kernels/simd/math.h"
//
#include "backend/cpu/kernels/pointwise/pointwise_body.h"

namespace triptych::kernels {

extern const PointwiseKernels kPointwiseAvx2 = {"avx2", epilogue, gated, add, scale, rotate_half};

}  // namespace triptych::kernels
