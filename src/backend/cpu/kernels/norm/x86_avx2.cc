#include "backend/cpu/kernels/simd/vec_avx2.h"
//
#include "backend/cpu/kernels/norm/norm_body.h"

namespace triptych::kernels {

extern const NormKernels kNormAvx2 = {"avx2", layer_norm, rms_norm};

}  // namespace triptych::kernels
