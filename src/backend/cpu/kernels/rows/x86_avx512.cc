#include "backend/cpu/kernels/simd/vec_avx512.h"
//
#include "backend/cpu/kernels/rows/rows_body.h"

namespace triptych::kernels {

extern const RowKernels kRowAvx512 = {"avx512", widen, narrow};

}  // namespace triptych::kernels
