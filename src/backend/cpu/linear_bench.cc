// Products against the machine's limits. Every round measures the limit and the product one after the other;
// the counter is the median of the ratios, by processor time (and with _wall by wall time).
//   of_peak: multiply-adds per second / peak of fused multiply-adds in registers
//   of_read: bytes of the weight per second / read bandwidth of a linear stream
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "backend/cpu/bench_util.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/probe.h"
#include "base/error.h"

namespace triptych::cpu {
namespace {

// A matrix [N, K] of small numbers, repeated so that copies together exceed the caches; in a mapped file, as
// weights are.
struct Matrices {
  Matrices(std::int64_t n, std::int64_t k, DType dtype, std::size_t total_bytes) {
    const std::size_t size_bytes = static_cast<std::size_t>(n * k) * triptych::size_bytes(dtype);
    const std::size_t n_copies = std::max<std::size_t>(1, total_bytes / size_bytes);
    const std::size_t mapped_bytes = n_copies * size_bytes;
    std::FILE* file = std::tmpfile();
    TRIPTYCH_CHECK(file != nullptr, "no temporary file");
    std::setvbuf(file, nullptr, _IONBF,
                 0);  // large writes, so that the system keeps the file in large pieces
    // 16-bit patterns of numbers near 0.01 in all three formats (two of them make a float too).
    std::vector<std::uint16_t> words(size_bytes / 2);
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = static_cast<std::uint16_t>(0x2c00U + (i * 2654435761U >> 24 & 0xffU));
    for (std::size_t c = 0; c < n_copies; ++c)
      TRIPTYCH_CHECK(std::fwrite(words.data(), 2, words.size(), file) == words.size(), "disk full");
    std::fflush(file);
    void* memory = mmap(nullptr, mapped_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fileno(file), 0);
    TRIPTYCH_CHECK(memory != MAP_FAILED, "cannot map");
    std::fclose(file);
    owner = std::shared_ptr<void>(memory, [mapped_bytes](void* p) { munmap(p, mapped_bytes); });
    for (std::size_t c = 0; c < n_copies; ++c) {
      LinearSpec spec;
      spec.name = "bench";
      spec.add(WeightEntry{"w", TensorView(static_cast<std::byte*>(memory) + c * size_bytes, dtype, {n, k}),
                           owner, ""});
      weights.push_back(std::make_unique<CpuLinear>(spec));
    }
  }
  std::shared_ptr<void> owner;
  std::vector<std::unique_ptr<CpuLinear>> weights;
};

void run(benchmark::State& state, bool many, DType dtype) {
  const std::int64_t m = state.range(0);
  const std::int64_t k = state.range(1);
  const std::int64_t n = state.range(2);
  const int n_threads = static_cast<int>(state.range(3));
  const Matrices w(n, k, dtype, many ? 1 : std::size_t{400} << 20);
  Runtime runtime(n_threads, false, active_features());
  MachineProbe probe(n_threads, active_features(), many ? std::size_t{4} << 20 : std::size_t{256} << 20);
  std::vector<float> x(static_cast<std::size_t>(m * k));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.1F - 0.8F;
  std::vector<float> y(static_cast<std::size_t>(m * n));
  const auto product = [&] {
    for (const auto& weight : w.weights) {
      const LinearCall call(*weight, {m, x.data(), k, Activation::kNone, nullptr, 0, y.data(), n});
      if (many) {
        linear_many_rows(runtime, call);
      } else {
        linear_few_rows(runtime, call);
      }
    }
  };
  product();
  const double n_copies = static_cast<double>(w.weights.size());
  const double flops = 2.0 * static_cast<double>(m * n * k) * n_copies;
  const double bytes = static_cast<double>(w.weights[0]->read_bytes()) * n_copies;
  measure_against(
      state, n_threads, many ? flops : bytes, many ? "of_peak" : "of_read", many ? "GFLOPS" : "GB/s",
      [&] { return many ? probe.fp32_flops(0.02) : probe.read_bytes(); }, product);
  state.SetLabel(runtime.gemm.name);
}

void BM_Gemm_f32(benchmark::State& state) { run(state, true, DType::kF32); }
void BM_Gemm_f16(benchmark::State& state) { run(state, true, DType::kF16); }
void BM_Gemm_bf16(benchmark::State& state) { run(state, true, DType::kBF16); }
void BM_Gemv_f32(benchmark::State& state) { run(state, false, DType::kF32); }
void BM_Gemv_f16(benchmark::State& state) { run(state, false, DType::kF16); }
void BM_Gemv_bf16(benchmark::State& state) { run(state, false, DType::kBF16); }

// Where streaming ends and tiles begin to pay.
void crossover_sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "k", "n", "threads"})->UseManualTime()->Iterations(9)->Unit(benchmark::kMillisecond);
  for (const int m : {4, 8, 12, 16, 20, 24, 32}) b->Args({m, 4096, 4096, 1});
}
void gemm_sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "k", "n", "threads"})->UseManualTime()->Iterations(15)->Unit(benchmark::kMillisecond);
  for (const int threads : {1, 2}) {
    b->Args({577, 1024, 4096, threads});
    b->Args({577, 4096, 1024, threads});
    b->Args({640, 4096, 4096, threads});
  }
}
void gemv_sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "k", "n", "threads"})->UseManualTime()->Iterations(15)->Unit(benchmark::kMillisecond);
  for (const int threads : {1, 2})
    for (const int m : {1, 2, 4, 8, 16}) b->Args({m, 4096, 4096, threads});
}

BENCHMARK(BM_Gemm_f32)->Apply(gemm_sizes);
BENCHMARK(BM_Gemm_f16)->Apply(gemm_sizes);
BENCHMARK(BM_Gemm_bf16)->Apply(gemm_sizes);
BENCHMARK(BM_Gemm_f32)->Apply(crossover_sizes);
BENCHMARK(BM_Gemm_f16)->Apply(crossover_sizes);
BENCHMARK(BM_Gemv_f32)->Apply(crossover_sizes);
BENCHMARK(BM_Gemv_f16)->Apply(crossover_sizes);
BENCHMARK(BM_Gemv_f32)->Apply(gemv_sizes);
BENCHMARK(BM_Gemv_f16)->Apply(gemv_sizes);
BENCHMARK(BM_Gemv_bf16)->Apply(gemv_sizes);

}  // namespace
}  // namespace triptych::cpu
