// Element by element: activations, sums, rotary embedding. Operands are float32; `y` may be an operand.
//
// NaN gives NaN. Infinities follow the formulas (silu(-inf) is NaN, gelu(+inf) is +inf). exp underflows to
// zero through the subnormal numbers and overflows to infinity.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/activation.h"
#include "backend/cpu/kernels/element_type.h"

namespace triptych::kernels {

/// Where results become int8 activations instead of floats: q = (v - offset) / step to nearest even, in -128
/// .. 127. The same bits from every implementation for the same v.
struct Int8Output {
  int8_t* q = nullptr;  // null: floats are wanted
  float inverse_step = 0;
  float offset = 0;
  float* scale =
      nullptr;  // set to NaN when a v is infinite or NaN, else left alone; may be shared by threads
};

/// y = f(x + bias) + residual; bias and residual may be null.
struct EpilogueArgs {
  Activation function;
  ptrdiff_t n;
  const float* x;
  const float* bias;
  const float* residual;
  float* y;
  // Faster versions of kGeluTanh, kQuickGelu and kSilu, for values that become 8-bit integers next: absolute
  // error below 1e-6 (1 + |x|), and below zero a relative one of 2e-5 down to x = -80.
  bool lean = false;
  Int8Output int8 = {};  // with it y is not written and may be null
};

/// y = f(gate + gate_bias) * (up + up_bias); biases may be null.
struct GatedArgs {
  Activation function;
  ptrdiff_t n;
  const float* gate;
  const float* up;
  const float* gate_bias;
  const float* up_bias;
  float* y;
  bool lean = false;  // as above
  Int8Output int8 = {};
};

struct PointwiseKernels {
  const char* name;
  void (*epilogue)(const EpilogueArgs& args);
  void (*gated)(const GatedArgs& args);
  void (*add)(ptrdiff_t n, const float* a, const float* b, float* y);
  void (*scale)(ptrdiff_t n, float factor, const float* x, float* y);
  /// Pairs (x[i], x[i + half]) turned by the angle whose cosine and sine are given, i < half.
  void (*rotate_half)(ptrdiff_t half, const float* cos, const float* sin, float* x);
};

const PointwiseKernels& pointwise_kernels(CpuFeatures features);

extern const PointwiseKernels kPointwiseScalar;
extern const PointwiseKernels kPointwiseAvx2;
extern const PointwiseKernels kPointwiseAvx512;
extern const PointwiseKernels kPointwiseNeon;

}  // namespace triptych::kernels
