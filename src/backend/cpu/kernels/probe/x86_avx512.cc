#include "backend/cpu/kernels/simd/vec_avx512.h"
//
#include "backend/cpu/kernels/probe/probe_body.h"

namespace triptych::kernels {

extern const ProbeKernels kProbeAvx512 = {"avx512", fma, read, nullptr, nullptr};

}  // namespace triptych::kernels
