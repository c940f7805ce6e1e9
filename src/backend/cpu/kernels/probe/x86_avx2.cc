#include "backend/cpu/kernels/simd/vec_avx2.h"
//
#include "backend/cpu/kernels/probe/probe_body.h"

namespace triptych::kernels {

extern const ProbeKernels kProbeAvx2 = {"avx2", fma, read, nullptr, nullptr};

}  // namespace triptych::kernels
