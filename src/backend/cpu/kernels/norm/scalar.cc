// The oracle of norm.h: statistics in double precision.
#include <cmath>
#include <cstddef>

#include "backend/cpu/kernels/norm/norm.h"

namespace triptych::kernels {
namespace {

void layer_norm(std::ptrdiff_t n, const float* x, const float* weight, const float* bias, float eps,
                float* y) {
  double sum = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(n);
  double squares = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(x[i]) - mean;
    squares += d * d;
  }
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(eps));
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    float v = static_cast<float>((static_cast<double>(x[i]) - mean) * factor);
    if (weight != nullptr) v *= weight[i];
    y[i] = bias != nullptr ? v + bias[i] : v;
  }
}

void rms_norm(std::ptrdiff_t n, const float* x, const float* weight, float eps, float* y) {
  double squares = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(eps));
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const float v = static_cast<float>(static_cast<double>(x[i]) * factor);
    y[i] = weight != nullptr ? v * weight[i] : v;
  }
}

}  // namespace

const NormKernels kNormScalar = {"scalar", layer_norm, rms_norm};

}  // namespace triptych::kernels
