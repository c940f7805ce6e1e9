// Elements per second of each function, from the first-level cache.
#include <benchmark/benchmark.h>

#include <vector>

#include "backend/cpu/kernels/pointwise/pointwise.h"
#include "base/cpu_info.h"

namespace triptych::kernels {
namespace {

void BM_Function(benchmark::State& state) {
  const PointwiseKernels& kernels = pointwise_kernels(active_features());
  const Activation function = static_cast<Activation>(state.range(0));
  std::vector<float> x(2048);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 97) * 0.1F - 4.8F;
  std::vector<float> y(x.size());
  for (auto _ : state) {
    kernels.epilogue({function, static_cast<ptrdiff_t>(x.size()), x.data(), nullptr, nullptr, y.data()});
    benchmark::DoNotOptimize(y.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(x.size()));
  constexpr const char* kNames[] = {"none", "gelu", "gelu_tanh", "quick_gelu",
                                    "silu", "relu", "relu2",     "exp"};
  state.SetLabel(std::string(kernels.name) + " " + kNames[state.range(0)]);
}
BENCHMARK(BM_Function)->DenseRange(0, 7);

void BM_RotateHalf(benchmark::State& state) {
  const PointwiseKernels& kernels = pointwise_kernels(active_features());
  std::vector<float> x(128, 0.5F);
  const std::vector<float> cos(64, 0.6F);
  const std::vector<float> sin(64, 0.8F);
  for (auto _ : state) {
    kernels.rotate_half(64, cos.data(), sin.data(), x.data());
    benchmark::DoNotOptimize(x.data());
  }
  state.SetItemsProcessed(state.iterations() * 128);
  state.SetLabel(kernels.name);
}
BENCHMARK(BM_RotateHalf);

}  // namespace
}  // namespace triptych::kernels
