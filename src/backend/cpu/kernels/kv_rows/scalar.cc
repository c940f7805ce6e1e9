#include "backend/cpu/kernels/kv_rows/kv_rows_body.h"

namespace triptych::kernels {

extern const KvRowKernels kKvRowScalar = {"scalar", choose_offsets, encode, decode};

}  // namespace triptych::kernels
