// One tile from the caches: operations a second beside the processor's peak (BM_Peak in probe_bench.cc).
#include <benchmark/benchmark.h>

#include <vector>

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "base/cpu_info.h"

namespace triptych::kernels {
namespace {

// A panel meets `tiles` tiles of x, as in a product of 6 * tiles rows.
void BM_GemmS8Tile(benchmark::State& state) {
  const GemmS8Kernels& kernels = gemm_s8_kernels(active_features());
  const auto k = static_cast<ptrdiff_t>(state.range(0));
  const auto n_tiles = static_cast<ptrdiff_t>(state.range(1));
  const std::vector<uint8_t> panel(static_cast<std::size_t>(s8_panel_bytes(k)), 130);
  const std::vector<int8_t> q(static_cast<std::size_t>(n_tiles * kS8MaxRows * k), 1);
  const std::vector<float> scale(kS8PanelWidth, 1.0F);
  const std::vector<int32_t> sum(kS8MaxRows, static_cast<int32_t>(k));
  std::vector<float> y(static_cast<std::size_t>(n_tiles * kS8MaxRows * kS8PanelWidth));
  for (auto _ : state) {
    for (ptrdiff_t i = 0; i < n_tiles; ++i)
      kernels.tile({kS8MaxRows, s8_quads(k), q.data() + i * kS8MaxRows * k, k, panel.data(), scale.data(),
                    sum.data(), scale.data(), y.data() + i * kS8MaxRows * kS8PanelWidth, kS8PanelWidth});
    benchmark::DoNotOptimize(y.data());
  }
  state.counters["ops"] =
      benchmark::Counter(2.0 * static_cast<double>(n_tiles * kS8MaxRows * kS8PanelWidth * k) *
                             static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
  state.SetLabel(kernels.name);
}
BENCHMARK(BM_GemmS8Tile)->ArgNames({"k", "tiles"})->ArgsProduct({{512, 1024, 4096}, {1, 96}});

}  // namespace
}  // namespace triptych::kernels
