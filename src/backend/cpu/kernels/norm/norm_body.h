// The vector implementation of norm.h; a *_avx*.cc file includes the vector header first.
#pragma once

#include <math.h>

#include "backend/cpu/kernels/norm/norm.h"

namespace triptych::kernels {
namespace {

constexpr int kSums = 4;

// Sum of (x - shift)^power over the row, power 1 or 2.
template <int kPower>
TRIPTYCH_INLINE float sum(ptrdiff_t n, const float* x, float shift) {
  const Vf s = vset(shift);
  Vf acc[kSums];
  TRIPTYCH_UNROLL
  for (int j = 0; j < kSums; ++j) acc[j] = vzero();
  ptrdiff_t i = 0;
  for (; i + kSums * kLanes <= n; i += kSums * kLanes) {
    TRIPTYCH_UNROLL
    for (int j = 0; j < kSums; ++j) {
      const Vf d = vsub(vload(x + i + j * kLanes), s);
      acc[j] = kPower == 1 ? vadd(acc[j], d) : vfma(d, d, acc[j]);
    }
  }
  for (int j = 0; i + kLanes <= n; i += kLanes, ++j) {
    const Vf d = vsub(vload(x + i), s);
    acc[j] = kPower == 1 ? vadd(acc[j], d) : vfma(d, d, acc[j]);
  }
  float tail = 0.0F;
  for (; i < n; ++i) {
    const float d = x[i] - shift;
    tail += kPower == 1 ? d : d * d;
  }
  return vsum(vadd(vadd(acc[0], acc[2]), vadd(acc[1], acc[3]))) + tail;
}

TRIPTYCH_INLINE void affine(ptrdiff_t n, const float* x, float shift, float factor, const float* weight,
                            const float* bias, float* y) {
  const Vf s = vset(shift);
  const Vf f = vset(factor);
  ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Vf v = vmul(vsub(vload(x + i), s), f);
    if (weight != nullptr) v = vmul(v, vload(weight + i));
    if (bias != nullptr) v = vadd(v, vload(bias + i));
    vstore(y + i, v);
  }
  if (i == n) return;
  const int left = static_cast<int>(n - i);
  Vf v = vmul(vsub(vload_n(x + i, left), s), f);
  if (weight != nullptr) v = vmul(v, vload_n(weight + i, left));
  if (bias != nullptr) v = vadd(v, vload_n(bias + i, left));
  vstore_n(y + i, v, left);
}

void layer_norm(ptrdiff_t n, const float* x, const float* weight, const float* bias, float eps, float* y) {
  const float size = static_cast<float>(n);
  // The first mean may be off by a rounding of the largest partial sum; the mean of what is left corrects it.
  const float rough = sum<1>(n, x, 0.0F) / size;
  const float mean = rough + sum<1>(n, x, rough) / size;
  const float variance = sum<2>(n, x, mean) / size;
  affine(n, x, mean, 1.0F / sqrtf(variance + eps), weight, bias, y);
}

void rms_norm(ptrdiff_t n, const float* x, const float* weight, float eps, float* y) {
  const float mean_square = sum<2>(n, x, 0.0F) / static_cast<float>(n);
  affine(n, x, 0.0F, 1.0F / sqrtf(mean_square + eps), weight, nullptr, y);
}

}  // namespace
}  // namespace triptych::kernels
