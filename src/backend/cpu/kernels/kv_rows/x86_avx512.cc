#include "backend/cpu/kernels/kv_rows/kv_rows_body.h"

namespace triptych::kernels {

extern const KvRowKernels kKvRowAvx512 = {"avx512", choose_offset, encode, decode};

}  // namespace triptych::kernels
