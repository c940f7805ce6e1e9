// Rows moved and converted: embedding look-up, writing keys and values to the cache, gathering.
#pragma once

#include <stddef.h>

#include "backend/cpu/kernels/element_type.h"

namespace triptych::kernels {

struct RowKernels {
  const char* name;
  /// y[i] = x[i] as float, n elements of `type` from any alignment. Exact.
  void (*widen)(ElementType type, ptrdiff_t n, const void* x, float* y);
  /// y[i] = x[i] rounded to `type`, to nearest even; overflow gives infinity, NaN stays NaN.
  void (*narrow)(ElementType type, ptrdiff_t n, const float* x, void* y);
};

const RowKernels& row_kernels(CpuFeatures features);

extern const RowKernels kRowScalar;
extern const RowKernels kRowAvx2;
extern const RowKernels kRowAvx512;
extern const RowKernels kRowNeon;

}  // namespace triptych::kernels
