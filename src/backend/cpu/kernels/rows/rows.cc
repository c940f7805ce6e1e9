#include "backend/cpu/kernels/rows/rows.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const RowKernels& row_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<RowKernels>(
      features, {{kNeedsAvx512, &kRowAvx512}, {kNeedsAvx2, &kRowAvx2}, {kNeedsNothing, &kRowScalar}});
#elif defined(__aarch64__)
  return first_supported<RowKernels>(features, {{kNeedsNeon, &kRowNeon}, {kNeedsNothing, &kRowScalar}});
#else
  return first_supported<RowKernels>(features, {{kNeedsNothing, &kRowScalar}});
#endif
}

}  // namespace triptych::kernels
