#include "backend/cpu/kernels/simd/vec_avx2.h"
//
#include "backend/cpu/kernels/rows/rows_body.h"

namespace triptych::kernels {

extern const RowKernels kRowAvx2 = {"avx2", widen, narrow};

}  // namespace triptych::kernels
