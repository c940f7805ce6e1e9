#include "backend/cpu/kernels/simd/vec_neon.h"
//
#include "backend/cpu/kernels/norm/norm_body.h"

namespace triptych::kernels {

extern const NormKernels kNormNeon = {"neon", layer_norm, rms_norm};

}  // namespace triptych::kernels
