// One tile, and the packing of one block, from cache. "flops/element" of a pack is how much work an element's
// packing costs in cycles: compare with 2 * rows flops it takes part in.
#include <benchmark/benchmark.h>

#include <vector>

#include "backend/cpu/kernels/gemm/gemm.h"
#include "base/cpu_info.h"

namespace triptych::kernels {
namespace {

void BM_GemmTile(benchmark::State& state) {
  const GemmKernels& gemm = gemm_kernels(active_features());
  const int k = static_cast<int>(state.range(0));
  const int n_tiles = static_cast<int>(state.range(1));
  const std::size_t rows = static_cast<std::size_t>(gemm.max_rows);
  const std::size_t width = static_cast<std::size_t>(gemm.panel_width);
  const std::size_t tile_floats = rows * static_cast<std::size_t>(k);
  std::vector<float> a(tile_floats * static_cast<std::size_t>(n_tiles), 0.5F);
  std::vector<float> b(width * static_cast<std::size_t>(k), 0.5F);
  std::vector<float> c(rows * width * static_cast<std::size_t>(n_tiles), 0.0F);
  for (auto _ : state) {
    for (std::size_t t = 0; t < static_cast<std::size_t>(n_tiles); ++t)
      gemm.tile({gemm.max_rows, k, a.data() + t * tile_floats, gemm.max_rows, b.data(),
                 c.data() + t * rows * width, gemm.panel_width, false});
    benchmark::DoNotOptimize(c.data());
  }
  state.counters["flops"] = benchmark::Counter(
      2.0 * static_cast<double>(tile_floats * width) * n_tiles * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
  state.SetLabel(gemm.name);
}
// One tile again and again (first-level cache), and 44 of them (640 rows: second or third level).
BENCHMARK(BM_GemmTile)->ArgNames({"k", "tiles"})->ArgsProduct({{64, 128, 256, 512}, {1, 44}});

void BM_GemmPack(benchmark::State& state) {
  const GemmKernels& gemm = gemm_kernels(active_features());
  const ElementType type = static_cast<ElementType>(state.range(0));
  const int k = 512;
  const std::size_t stride_bytes = static_cast<std::size_t>(state.range(1)) * element_bytes(type);
  const std::size_t width = static_cast<std::size_t>(gemm.panel_width);
  std::vector<char> w(width * stride_bytes);
  std::vector<float> out(width * static_cast<std::size_t>(k));
  std::vector<const void*> rows;
  for (std::size_t r = 0; r < width; ++r) rows.push_back(w.data() + r * stride_bytes);
  for (auto _ : state) {
    gemm.pack({rows.data(), gemm.panel_width, type, 0, k, 1.0F, out.data(), gemm.panel_width});
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["elements"] = benchmark::Counter(
      static_cast<double>(out.size()) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.SetLabel(gemm.name);
}
BENCHMARK(BM_GemmPack)->ArgNames({"type", "stride"})->ArgsProduct({{0, 1, 2}, {512, 1040, 4096}});

}  // namespace
}  // namespace triptych::kernels
