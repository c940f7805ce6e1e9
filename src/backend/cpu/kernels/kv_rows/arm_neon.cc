#include "backend/cpu/kernels/kv_rows/kv_rows_body.h"

namespace triptych::kernels {

extern const KvRowKernels kKvRowNeon = {"neon", choose_offset, encode, decode};

}  // namespace triptych::kernels
