// Elements per second of the conversions, from the first-level cache.
#include <benchmark/benchmark.h>

#include <vector>

#include "backend/cpu/kernels/rows/rows.h"
#include "base/cpu_info.h"

namespace triptych::kernels {
namespace {

void BM_Widen(benchmark::State& state) {
  const RowKernels& kernels = row_kernels(active_features());
  const std::vector<float> x(2048, 0.0F);
  std::vector<float> y(2048);
  for (auto _ : state) {
    kernels.widen(static_cast<ElementType>(state.range(0)), 2048, x.data(), y.data());
    benchmark::DoNotOptimize(y.data());
  }
  state.SetItemsProcessed(state.iterations() * 2048);
  state.SetLabel(kernels.name);
}
BENCHMARK(BM_Widen)->ArgName("type")->DenseRange(0, 2);

void BM_Narrow(benchmark::State& state) {
  const RowKernels& kernels = row_kernels(active_features());
  const std::vector<float> x(2048, 0.1F);
  std::vector<float> y(2048);
  for (auto _ : state) {
    kernels.narrow(static_cast<ElementType>(state.range(0)), 2048, x.data(), y.data());
    benchmark::DoNotOptimize(y.data());
  }
  state.SetItemsProcessed(state.iterations() * 2048);
  state.SetLabel(kernels.name);
}
BENCHMARK(BM_Narrow)->ArgName("type")->DenseRange(0, 2);

}  // namespace
}  // namespace triptych::kernels
