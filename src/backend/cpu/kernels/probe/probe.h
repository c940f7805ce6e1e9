// Loops that do one thing as fast as the machine can: what products are measured against. Results go to a
// sink so that nothing is removed.
#pragma once

#include <stddef.h>

#include "backend/cpu/kernels/element_type.h"

namespace triptych::kernels {

struct ProbeKernels {
  const char* name;
  /// Independent float32 multiply-adds in registers; returns the operations done (a multiply-add is two).
  double (*fma)(long rounds, float* sink);
  /// Reads n_bytes (a multiple of 1024) once, as one linear stream.
  void (*read)(const void* data, size_t n_bytes, float* sink);
  /// Products of 8-bit integers added to 32-bit ones, and of bfloat16 pairs added to float32; null where the
  /// instruction set has no instruction for it.
  double (*int8_dot)(long rounds, float* sink);
  double (*bf16_dot)(long rounds, float* sink);
};

const ProbeKernels& probe_kernels(CpuFeatures features);

extern const ProbeKernels kProbeScalar;
extern const ProbeKernels kProbeAvx2;
extern const ProbeKernels kProbeAvx512;
extern const ProbeKernels kProbeAvx512Vnni;
extern const ProbeKernels kProbeAvx512Bf16;
extern const ProbeKernels kProbeAmxInt8;
extern const ProbeKernels kProbeAmxBf16;
extern const ProbeKernels kProbeEmulatedTiles;  // products only
extern const ProbeKernels kProbeNeon;
extern const ProbeKernels kProbeDotprod;
extern const ProbeKernels kProbeI8mm;

}  // namespace triptych::kernels
