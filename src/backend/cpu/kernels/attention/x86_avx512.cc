#include "backend/cpu/kernels/simd/vec_avx512.h"
//
#include "backend/cpu/kernels/gemm/gemm_body.h"
#include "backend/cpu/kernels/simd/math.h"
//
#include "backend/cpu/kernels/attention/attention_body.h"

namespace triptych::kernels {

extern const AttentionKernels kAttentionAvx512 = {"avx512", attention};

}  // namespace triptych::kernels
