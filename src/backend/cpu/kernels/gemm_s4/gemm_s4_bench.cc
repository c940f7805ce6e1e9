// One panel from the caches: operations a second of few rows, and codes a second that become 8-bit weights.
#include <benchmark/benchmark.h>

#include <vector>

#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"
#include "base/cpu_info.h"

namespace triptych::kernels {
namespace {

constexpr ptrdiff_t kK = 4096;

// Bytes that are codes, small scales and zero points alike.
std::vector<uint8_t> panel_of(const S4Layout& layout) {
  return std::vector<uint8_t>(static_cast<std::size_t>(layout.panel_bytes()), 0x1a);
}

void count(benchmark::State& state, const char* counter, ptrdiff_t each) {
  state.counters[counter] = benchmark::Counter(
      static_cast<double>(each) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.SetLabel(gemm_s4_kernels(active_features()).name);
}

void BM_GemmS4Rows(benchmark::State& state) {
  const S4Layout layout{kK, static_cast<ptrdiff_t>(state.range(0)), false};
  const auto n_rows = static_cast<int>(state.range(1));
  const std::vector<uint8_t> panel = panel_of(layout);
  const std::vector<int8_t> q(static_cast<std::size_t>(n_rows * kK), 1);
  const std::vector<int32_t> sums(static_cast<std::size_t>(n_rows * layout.n_groups()), 1);
  const std::vector<float> scale(kS4MaxRows, 1.0F);
  std::vector<float> y(kS4MaxRows * kS4PanelWidth);
  for (auto _ : state) {
    gemm_s4_kernels(active_features())
        .rows(
            {layout, n_rows, q.data(), kK, sums.data(), scale.data(), panel.data(), y.data(), kS4PanelWidth});
    benchmark::DoNotOptimize(y.data());
  }
  count(state, "ops", 2 * n_rows * kK * kS4PanelWidth);
}
BENCHMARK(BM_GemmS4Rows)->ArgNames({"group", "rows"})->ArgsProduct({{32, 128}, {1, 2, 4, 6}});

void BM_GemmS4Requantize(benchmark::State& state) {
  const S4Layout layout{kK, static_cast<ptrdiff_t>(state.range(0)), false};
  const std::vector<uint8_t> panel = panel_of(layout);
  const std::vector<float> scale(kS4PanelWidth, 1.0F);
  std::vector<uint8_t> out(static_cast<std::size_t>(kK * kS4PanelWidth));
  for (auto _ : state) {
    gemm_s4_kernels(active_features()).requantize({layout, panel.data(), scale.data(), out.data()});
    benchmark::DoNotOptimize(out.data());
  }
  count(state, "codes", kK * kS4PanelWidth);
}
BENCHMARK(BM_GemmS4Requantize)->ArgName("group")->Arg(16)->Arg(32)->Arg(128);

}  // namespace
}  // namespace triptych::kernels
