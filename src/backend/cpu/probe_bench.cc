// The machine's limits by themselves.
#include <benchmark/benchmark.h>

#include "backend/cpu/probe.h"

namespace triptych {
namespace {

void BM_Limits(benchmark::State& state) {
  MachineProbe probe(static_cast<int>(state.range(0)), active_features());
  MachineLimits best;
  for (auto _ : state) best = probe.measure(7).highest;
  state.counters["fp32_GFLOPS"] = best.fp32_flops_per_s / 1e9;
  state.counters["int8_GOPS"] = best.int8_ops_per_s / 1e9;
  state.counters["bf16_GFLOPS"] = best.bf16_flops_per_s / 1e9;
  state.counters["read_GB/s"] = best.read_bytes_per_s / 1e9;
}
BENCHMARK(BM_Limits)->ArgName("threads")->Arg(1)->Arg(2)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace triptych
