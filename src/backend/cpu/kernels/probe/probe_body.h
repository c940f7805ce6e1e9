// fma and read of probe.h on vectors; a *_avx*.cc file includes the vector header first.
#pragma once

#include "backend/cpu/kernels/probe/probe.h"

namespace triptych::kernels {
namespace {

// Enough independent chains to hide a latency of 4 to 5 cycles at two instructions a cycle.
constexpr int kChains = 12;

double fma(long rounds, float* sink) {
  Vf acc[kChains];
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) acc[i] = vset(sink[0] + static_cast<float>(i));
  const Vf a = vset(sink[1]);
  const Vf b = vset(sink[2]);
  for (long r = 0; r < rounds; ++r) {
    TRIPTYCH_UNROLL
    for (int i = 0; i < kChains; ++i) acc[i] = vfma(acc[i], a, b);
  }
  Vf sum = vzero();
  TRIPTYCH_UNROLL
  for (int i = 0; i < kChains; ++i) sum = vadd(sum, acc[i]);
  sink[3] = vsum(sum);
  return 2.0 * kChains * kLanes * static_cast<double>(rounds);
}

void read(const void* data, size_t n_bytes, float* sink) {
  const char* p = static_cast<const char*>(data);
  const char* end = p + n_bytes;
  Vf acc[4];
  TRIPTYCH_UNROLL
  for (int i = 0; i < 4; ++i) acc[i] = vzero();
  constexpr ptrdiff_t kVectorBytes = 4 * kLanes;
  for (; p < end; p += 1024) {
    TRIPTYCH_UNROLL
    for (int i = 0; i < 1024; i += 64) prefetch_l1(p + 2048 + i);
    TRIPTYCH_UNROLL
    for (int i = 0; i < 1024; i += 4 * kVectorBytes) {
      TRIPTYCH_UNROLL
      for (int j = 0; j < 4; ++j)
        acc[j] = vmax(acc[j], vload_as<ElementType::kF32>(p + i + j * kVectorBytes, 0));
    }
  }
  sink[3] = vsum(vadd(vadd(acc[0], acc[1]), vadd(acc[2], acc[3])));
}

}  // namespace
}  // namespace triptych::kernels
