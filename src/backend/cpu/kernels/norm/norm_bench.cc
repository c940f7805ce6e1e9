// Elements per second of the norms, from the caches.
#include <benchmark/benchmark.h>

#include <vector>

#include "backend/cpu/kernels/norm/norm.h"
#include "base/cpu_info.h"

namespace triptych::kernels {
namespace {

void BM_LayerNorm(benchmark::State& state) {
  const NormKernels& kernels = norm_kernels(active_features());
  const std::size_t n = static_cast<std::size_t>(state.range(0));
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 97) * 0.1F;
  const std::vector<float> weight(n, 0.5F);
  std::vector<float> y(n);
  for (auto _ : state) {
    kernels.layer_norm(state.range(0), x.data(), weight.data(), weight.data(), 1e-5F, y.data());
    benchmark::DoNotOptimize(y.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetLabel(kernels.name);
}
BENCHMARK(BM_LayerNorm)->Arg(1024)->Arg(4096);

void BM_RmsNorm(benchmark::State& state) {
  const NormKernels& kernels = norm_kernels(active_features());
  const std::size_t n = static_cast<std::size_t>(state.range(0));
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 97) * 0.1F;
  const std::vector<float> weight(n, 0.5F);
  std::vector<float> y(n);
  for (auto _ : state) {
    kernels.rms_norm(state.range(0), x.data(), weight.data(), 1e-5F, y.data());
    benchmark::DoNotOptimize(y.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetLabel(kernels.name);
}
BENCHMARK(BM_RmsNorm)->Arg(1024)->Arg(4096);

}  // namespace
}  // namespace triptych::kernels
