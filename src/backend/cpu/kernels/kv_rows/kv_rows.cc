#include "backend/cpu/kernels/kv_rows/kv_rows.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const KvRowKernels& kv_row_kernels(Isa isa) {
  return first_supported<KvRowKernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512, &kKvRowAvx512}, {Isa::kAvx2, &kKvRowAvx2},
#elif defined(__aarch64__)
    {Isa::kNeon, &kKvRowNeon},
#endif
    {
      Isa::kScalar, &kKvRowScalar
    }
  });
}

}  // namespace triptych::kernels
