// One tile from the caches: operations a second beside the processor's peak (BM_Peak in probe_bench.cc).
#include <benchmark/benchmark.h>

#include <vector>

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/tiles/tile_scope.h"
#include "base/cpu_info.h"

namespace triptych::kernels {
namespace {

// A panel meets `tiles` tiles of x, as in a product of max_rows * tiles rows.
void measure_tile(benchmark::State& state, const GemmS8Kernels& kernels) {
  const auto k = static_cast<ptrdiff_t>(state.range(0));
  const auto n_tiles = static_cast<ptrdiff_t>(state.range(1));
  const int rows = kernels.max_rows;
  const std::vector<uint8_t> panel(static_cast<std::size_t>(s8_panel_bytes(k)), 130);
  const std::vector<int8_t> q(static_cast<std::size_t>(n_tiles * rows * k), 1);
  const std::vector<float> scale(kS8PanelWidth, 1.0F);
  const std::vector<int32_t> sum(static_cast<std::size_t>(rows), static_cast<int32_t>(k));
  std::vector<float> y(static_cast<std::size_t>(n_tiles * rows * kS8PanelWidth));
  const TileScope scope(kernels.tiles);
  for (auto _ : state) {
    for (ptrdiff_t i = 0; i < n_tiles; ++i)
      kernels.tile({rows, s8_quads(k), q.data() + i * rows * k, k, panel.data(), scale.data(), sum.data(),
                    scale.data(), y.data() + i * rows * kS8PanelWidth, kS8PanelWidth});
    benchmark::DoNotOptimize(y.data());
  }
  state.counters["ops"] = benchmark::Counter(
      2.0 * static_cast<double>(n_tiles * rows * kS8PanelWidth * k) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
  state.SetLabel(kernels.name);
}

void BM_GemmS8Tile(benchmark::State& state) { measure_tile(state, gemm_s8_kernels(active_features())); }
BENCHMARK(BM_GemmS8Tile)->ArgNames({"k", "tiles"})->ArgsProduct({{512, 1024, 4096}, {1, 96}});

// The same by tiles of registers, where the processor has them.
void BM_GemmS8Amx(benchmark::State& state) {
  const GemmS8Kernels* kernels = gemm_s8_tile_kernels(active_features());
  if (kernels == nullptr) return state.SkipWithError("no AMX");
  measure_tile(state, *kernels);
}
BENCHMARK(BM_GemmS8Amx)->ArgNames({"k", "tiles"})->ArgsProduct({{512, 1024, 4096}, {1, 18}});

}  // namespace
}  // namespace triptych::kernels
