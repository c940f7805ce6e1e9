// Whole products with weights of 8 and 4 bits (rows quantized, panels made 8-bit, epilogue) against the
// machine's limits, measured in turn as in linear_bench.cc.
//   of_peak: operations per second / peak of 8-bit multiply-adds in registers (192 rows and more)
//   of_read: bytes of the weight per second / read bandwidth of a linear stream (up to 32 rows)
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/bench_util.h"
#include "backend/cpu/linear_s4.h"
#include "backend/cpu/linear_s8.h"
#include "backend/cpu/probe.h"

namespace triptych::cpu {
namespace {

std::unique_ptr<CpuWeight> make_weight(Runtime& runtime, const char* format, std::int64_t n, std::int64_t k) {
  Tensor values(DType::kF32, {n, k});
  std::uint32_t word = 1;
  for (std::int64_t i = 0; i < n * k; ++i) {
    word = word * 1664525U + 1013904223U;
    values.f32()[i] = static_cast<float>(static_cast<std::int32_t>(word)) * 0x1p-36F;
  }
  LinearSpec spec;
  spec.name = "bench";
  spec.add(WeightEntry{"w", values.view(), values.buffer().owner(), ""});
  spec.format = QuantFormat::parse(format);
  if (spec.format->code == QuantCode::kInt8) return std::make_unique<CpuLinearS8>(runtime, spec);
  return std::make_unique<CpuLinearS4>(runtime, spec);
}

void run(benchmark::State& state, const char* format) {
  const std::int64_t m = state.range(0);
  const std::int64_t k = state.range(1);
  const std::int64_t n = state.range(2);
  const int n_threads = static_cast<int>(state.range(3));
  const bool many = m > 64;
  Runtime runtime(n_threads, false, active_features());
  MachineProbe probe(n_threads, active_features(), many ? std::size_t{4} << 20 : std::size_t{256} << 20);
  // Copies that exceed the caches together.
  const std::int64_t weight_bytes = n * k / 2;
  const std::int64_t n_copies = many ? 1 : (std::int64_t{400} << 20) / weight_bytes;
  std::vector<std::unique_ptr<CpuWeight>> weights;
  for (std::int64_t i = 0; i < n_copies; ++i) weights.push_back(make_weight(runtime, format, n, k));
  std::vector<float> x(static_cast<std::size_t>(m * k));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.1F - 0.8F;
  std::vector<float> y(static_cast<std::size_t>(m * n));
  const auto product = [&] {
    for (const auto& weight : weights)
      weight->multiply(runtime, {m, x.data(), k, Activation::kNone, nullptr, 0, y.data(), n});
  };
  product();
  const double operations = 2.0 * static_cast<double>(m * n * k * n_copies);
  const double bytes = static_cast<double>(weights[0]->read_bytes()) * static_cast<double>(n_copies);
  measure_against(
      state, n_threads, many ? operations : bytes, many ? "of_peak" : "of_read", many ? "GOPS" : "GB/s",
      [&] { return many ? probe.int8_ops(0.02) : probe.read_bytes(); }, product);
  state.SetLabel(runtime.gemm_s8.name);
}

void many_sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "k", "n", "threads"})->UseManualTime()->Iterations(15)->Unit(benchmark::kMillisecond);
  for (const int threads : {1, 2}) {
    for (const int m : {192, 640}) b->Args({m, 4096, 4096, threads});
    b->Args({577, 1024, 4096, threads});
    b->Args({577, 4096, 1024, threads});
    b->Args({577, 1024, 1024, threads});
    b->Args({577, 1024, 3072, threads});
    b->Args({640, 896, 896, threads});
  }
}
void few_sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "k", "n", "threads"})->UseManualTime()->Iterations(9)->Unit(benchmark::kMillisecond);
  for (const int threads : {1, 2})
    for (const int m : {1, 2, 4, 8, 12, 16, 24, 32}) b->Args({m, 4096, 4096, threads});
}

BENCHMARK_CAPTURE(run, BM_Quantized_int8, "int8")->Apply(many_sizes)->Apply(few_sizes);
BENCHMARK_CAPTURE(run, BM_Quantized_int4_g32, "int4:g32")->Apply(many_sizes)->Apply(few_sizes);
BENCHMARK_CAPTURE(run, BM_Quantized_int4_g128, "int4:g128")->Apply(many_sizes)->Apply(few_sizes);
BENCHMARK_CAPTURE(run, BM_Quantized_int4_g128_asym, "int4:g128:asym")->Apply(many_sizes)->Apply(few_sizes);

}  // namespace
}  // namespace triptych::cpu
