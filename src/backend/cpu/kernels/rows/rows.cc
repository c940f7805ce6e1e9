#include "backend/cpu/kernels/rows/rows.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const RowKernels& row_kernels(Isa isa) {
  return first_supported<RowKernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512, &kRowAvx512}, {Isa::kAvx2, &kRowAvx2},
#elif defined(__aarch64__)
    {Isa::kNeon, &kRowNeon},
#endif
    {
      Isa::kScalar, &kRowScalar
    }
  });
}

}  // namespace triptych::kernels
