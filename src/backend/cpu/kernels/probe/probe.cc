#include "backend/cpu/kernels/probe/probe.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const ProbeKernels& probe_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<ProbeKernels>(features, {{kNeedsAmxInt8 | kNeedsAmxBf16, &kProbeAmxBf16},
                                                  {kNeedsAmxInt8 | kNeedsAvx512Bf16, &kProbeAmxInt8},
                                                  {kNeedsAvx512Bf16, &kProbeAvx512Bf16},
                                                  {kNeedsAvx512Vnni, &kProbeAvx512Vnni},
                                                  {kNeedsAvx512, &kProbeAvx512},
                                                  {kNeedsAvx2, &kProbeAvx2},
                                                  {kNeedsNothing, &kProbeScalar}});
#elif defined(__aarch64__)
  return first_supported<ProbeKernels>(features, {{kNeedsI8mm, &kProbeI8mm},
                                                  {kNeedsDotprod, &kProbeDotprod},
                                                  {kNeedsNeon, &kProbeNeon},
                                                  {kNeedsNothing, &kProbeScalar}});
#else
  return first_supported<ProbeKernels>(features, {{kNeedsNothing, &kProbeScalar}});
#endif
}

}  // namespace triptych::kernels
