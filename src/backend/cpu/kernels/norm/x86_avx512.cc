#include "backend/cpu/kernels/simd/vec_avx512.h"
//
#include "backend/cpu/kernels/norm/norm_body.h"

namespace triptych::kernels {

extern const NormKernels kNormAvx512 = {"avx512", layer_norm, rms_norm};

}  // namespace triptych::kernels
