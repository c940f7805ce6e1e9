#include "backend/cpu/kernels/simd/vec_avx2.h"
//
#include "backend/cpu/kernels/gemm/gemm_body.h"
#include "backend/cpu/kernels/simd/math.h"
//
#include "backend/cpu/kernels/attention/attention_body.h"

namespace triptych::kernels {

extern const AttentionKernels kAttentionAvx2 = {"avx2", attention};

}  // namespace triptych::kernels
