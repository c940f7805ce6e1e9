#include "backend/cpu/kernels/kv_rows/kv_rows.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const KvRowKernels& kv_row_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<KvRowKernels>(
      features, {{kNeedsAvx512, &kKvRowAvx512}, {kNeedsAvx2, &kKvRowAvx2}, {kNeedsNothing, &kKvRowScalar}});
#elif defined(__aarch64__)
  return first_supported<KvRowKernels>(features, {{kNeedsNeon, &kKvRowNeon}, {kNeedsNothing, &kKvRowScalar}});
#else
  return first_supported<KvRowKernels>(features, {{kNeedsNothing, &kKvRowScalar}});
#endif
}

}  // namespace triptych::kernels
