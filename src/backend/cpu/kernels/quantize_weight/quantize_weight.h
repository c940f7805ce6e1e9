// Quantizing weights while they are loaded: the range of a group of neighbours, and its codes against a scale
// that the caller has chosen. The same bits from every implementation, and from tensor/quant_codec.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels/element_type.h"

namespace triptych::kernels {

struct WeightRange {
  float low;    // the smallest value, 0 at most
  float high;   // the largest value, 0 at least
  bool finite;  // all of them; else low and high mean nothing
};

/// codes[i] = clamp(round(w[i] / scale) + zero, low, high), rounded to nearest even.
struct WeightCodesArgs {
  ptrdiff_t n;
  const float* w;
  float scale;            // finite, not zero
  float zero, low, high;  // integers, |zero| <= 128, low and high in 0..255
  uint8_t* codes;
};

struct QuantizeWeightKernels {
  const char* name;
  WeightRange (*range)(ptrdiff_t n, const float* w);
  void (*codes)(const WeightCodesArgs& args);
};

/// The best implementation for the instruction sets that may be used.
const QuantizeWeightKernels& quantize_weight_kernels(CpuFeatures features);

extern const QuantizeWeightKernels kQuantizeWeightScalar;
extern const QuantizeWeightKernels kQuantizeWeightAvx2;

}  // namespace triptych::kernels
