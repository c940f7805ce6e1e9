#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels/probe/probe.h"

namespace triptych::kernels {
namespace {

constexpr int kChains = 8;

double fma(long rounds, float* sink) {
  float acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = sink[0] + static_cast<float>(i);
  const float a = sink[1];
  const float b = sink[2];
  for (long r = 0; r < rounds; ++r)
    for (int i = 0; i < kChains; ++i) acc[i] = acc[i] * a + b;
  float sum = 0.0F;
  for (int i = 0; i < kChains; ++i) sum += acc[i];
  sink[3] = sum;
  return 2.0 * kChains * static_cast<double>(rounds);
}

void read(const void* data, std::size_t n_bytes, float* sink) {
  std::uint64_t sum[4] = {};
  const char* p = static_cast<const char*>(data);
  for (std::size_t i = 0; i < n_bytes; i += 32) {
    std::uint64_t word[4];
    std::memcpy(word, p + i, sizeof(word));
    for (int j = 0; j < 4; ++j) sum[j] |= word[j];
  }
  sink[3] = static_cast<float>(sum[0] | sum[1] | sum[2] | sum[3]);
}

}  // namespace

const ProbeKernels kProbeScalar = {"scalar", fma, read, nullptr, nullptr};

}  // namespace triptych::kernels
