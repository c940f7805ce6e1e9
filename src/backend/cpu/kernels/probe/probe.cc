#include "backend/cpu/kernels/probe/probe.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const ProbeKernels& probe_kernels(Isa isa) {
  return first_supported<ProbeKernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512Bf16, &kProbeAvx512Bf16}, {Isa::kAvx512Vnni, &kProbeAvx512Vnni},
        {Isa::kAvx512, &kProbeAvx512}, {Isa::kAvx2, &kProbeAvx2},
#elif defined(__aarch64__)
    {Isa::kI8mm, &kProbeI8mm},    {Isa::kDotprod, &kProbeDotprod},    {Isa::kNeon, &kProbeNeon},
#endif
    {
      Isa::kScalar, &kProbeScalar
    }
  });
}

}  // namespace triptych::kernels
