// The oracle of pointwise.h: the formulas in double precision, rounded once.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>

#include "backend/cpu/kernels/pointwise/pointwise.h"

namespace triptych::kernels {
namespace {

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

float apply(Activation function, float value) {
  const double x = static_cast<double>(value);
  switch (function) {
    case Activation::kNone:
      return value;
    case Activation::kGelu:
      return static_cast<float>(x * 0.5 * std::erfc(-x * 0.70710678118654752440));
    case Activation::kGeluTanh:
      return static_cast<float>(x * logistic(2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case Activation::kQuickGelu:
      return static_cast<float>(x * logistic(static_cast<double>(1.702F) * x));
    case Activation::kSilu:
      return static_cast<float>(x * logistic(x));
    case Activation::kRelu:
      return value < 0.0F ? 0.0F : value;
    case Activation::kRelu2:
      return value < 0.0F ? 0.0F : value * value;
    case Activation::kExp:
      return static_cast<float>(std::exp(x));
  }
  return value;
}

// A result as a float, or as an int8 activation with static parameters.
void put(float* y, const Int8Output& int8, std::ptrdiff_t i, float v) {
  if (int8.q == nullptr) {
    y[i] = v;
  } else if (std::isfinite(v)) {
    const float rounded = std::nearbyint((v - int8.offset) * int8.inverse_step);
    int8.q[i] = static_cast<std::int8_t>(std::clamp(rounded, -128.0F, 127.0F));
  } else {
    int8.q[i] = 0;
    std::atomic_ref<float>(*int8.scale)
        .store(std::numeric_limits<float>::quiet_NaN(), std::memory_order_relaxed);
  }
}

void epilogue(const EpilogueArgs& e) {
  for (std::ptrdiff_t i = 0; i < e.n; ++i) {
    const float v = apply(e.function, e.bias != nullptr ? e.x[i] + e.bias[i] : e.x[i]);
    put(e.y, e.int8, i, e.residual != nullptr ? v + e.residual[i] : v);
  }
}

void gated(const GatedArgs& t) {
  for (std::ptrdiff_t i = 0; i < t.n; ++i) {
    const float gate = t.gate_bias != nullptr ? t.gate[i] + t.gate_bias[i] : t.gate[i];
    const float up = t.up_bias != nullptr ? t.up[i] + t.up_bias[i] : t.up[i];
    put(t.y, t.int8, i, apply(t.function, gate) * up);
  }
}

void add(std::ptrdiff_t n, const float* a, const float* b, float* y) {
  for (std::ptrdiff_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

void scale(std::ptrdiff_t n, float factor, const float* x, float* y) {
  for (std::ptrdiff_t i = 0; i < n; ++i) y[i] = factor * x[i];
}

void rotate_half(std::ptrdiff_t half, const float* cos, const float* sin, float* x) {
  for (std::ptrdiff_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[half + i];
    x[i] = a * cos[i] - b * sin[i];
    x[half + i] = b * cos[i] + a * sin[i];
  }
}

}  // namespace

const PointwiseKernels kPointwiseScalar = {"scalar", epilogue, gated, add, scale, rotate_half};

}  // namespace triptych::kernels
