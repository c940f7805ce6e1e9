// Normalisation of one row. Sums are kept in four vectors of partial sums (scalar: in double), so their error
// stays near that of pairwise summation; the variance is taken around the mean in a second pass.
#pragma once

#include <stddef.h>

#include "backend/cpu/kernels/element_type.h"

namespace triptych::kernels {

struct NormKernels {
  const char* name;
  /// y = (x - mean) / sqrt(variance + eps) * weight + bias, variance biased (Ba, Kiros and Hinton, "Layer
  /// normalization", 2016). weight and bias may be null. y may be x.
  void (*layer_norm)(ptrdiff_t n, const float* x, const float* weight, const float* bias, float eps,
                     float* y);
  /// y = x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich, "Root mean square layer normalization",
  /// 2019).
  void (*rms_norm)(ptrdiff_t n, const float* x, const float* weight, float eps, float* y);
};

const NormKernels& norm_kernels(CpuFeatures features);

extern const NormKernels kNormScalar;
extern const NormKernels kNormAvx2;
extern const NormKernels kNormAvx512;
extern const NormKernels kNormNeon;

}  // namespace triptych::kernels
