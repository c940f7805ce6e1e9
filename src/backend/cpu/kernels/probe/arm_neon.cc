#include "backend/cpu/kernels/simd/vec_neon.h"
//
#include "backend/cpu/kernels/probe/probe_body.h"

namespace triptych::kernels {

extern const ProbeKernels kProbeNeon = {"neon", fma, read, nullptr, nullptr};

}  // namespace triptych::kernels
