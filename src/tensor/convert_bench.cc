// Conversion of a checkpoint's element types, per element; the data stays in the cache.
#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "tensor/convert.h"

namespace triptych {
namespace {

constexpr std::int64_t kElements = 1 << 16;

void run(benchmark::State& state, DType from, DType to) {
  Tensor source(DType::kF32, {kElements});
  Rng rng(1);
  for (std::int64_t i = 0; i < kElements; ++i) source.f32()[i] = rng.uniform_f32() - 0.5f;
  Tensor a(from, {kElements});
  convert(source, a);
  const Tensor b(to, {kElements});
  for (auto _ : state) {
    convert(a, b);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kElements);
}

BENCHMARK_CAPTURE(run, bf16_to_f32, DType::kBF16, DType::kF32);
BENCHMARK_CAPTURE(run, f32_to_bf16, DType::kF32, DType::kBF16);
BENCHMARK_CAPTURE(run, f16_to_f32, DType::kF16, DType::kF32);
BENCHMARK_CAPTURE(run, f32_to_f16, DType::kF32, DType::kF16);
BENCHMARK_CAPTURE(run, f8e4m3_to_f32, DType::kF8E4M3, DType::kF32);
BENCHMARK_CAPTURE(run, f32_to_f8e4m3, DType::kF32, DType::kF8E4M3);
BENCHMARK_CAPTURE(run, f16_to_bf16, DType::kF16, DType::kBF16);

}  // namespace
}  // namespace triptych
