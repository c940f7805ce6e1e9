#include "backend/cpu/kernels/simd/vec_neon.h"
//
#include "backend/cpu/kernels/rows/rows_body.h"

namespace triptych::kernels {

extern const RowKernels kRowNeon = {"neon", widen, narrow};

}  // namespace triptych::kernels
