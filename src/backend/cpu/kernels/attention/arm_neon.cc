#include "backend/cpu/kernels/simd/vec_neon.h"
//
#include "backend/cpu/kernels/gemm/gemm_body.h"
#include "backend/cpu/kernels/simd/math.h"
//
#include "backend/cpu/kernels/attention/attention_body.h"

namespace triptych::kernels {

extern const AttentionKernels kAttentionNeon = {"neon", attention};

}  // namespace triptych::kernels
