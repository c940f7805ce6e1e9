// Attention against the machine's limits, as in linear_bench.cc.
//   of_peak: multiply-adds of both products (only visible pairs) per second / peak
//   of_read: bytes of keys and values per second / read bandwidth
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/bench_util.h"
#include "backend/cpu/probe.h"

namespace triptych::cpu {
namespace {

Tensor numbers(const Shape& shape) {
  Tensor t(DType::kF32, shape);
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    t.f32()[i] = static_cast<float>(i * 7919 % 1013) * 0.002F - 1.0F;
  return t;
}

// Towers and prefill: every token of one segment.
void BM_Attention(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const std::int64_t heads = state.range(1);
  const std::int64_t d = state.range(2);
  const bool causal = state.range(3) != 0;
  const int n_threads = static_cast<int>(state.range(4));
  const bool int8 = state.range(5) != 0;
  Runtime runtime(n_threads, false, active_features(), {.int8_attention = int8});
  MachineProbe probe(n_threads, active_features(), std::size_t{4} << 20);
  const Tensor qkv = numbers({n, 3 * heads * d});
  const auto part = [&](std::int64_t i) {
    return qkv.view().cols(i * heads * d, (i + 1) * heads * d).split_last(heads, d);
  };
  const std::vector<std::int32_t> cu = {0, static_cast<std::int32_t>(n)};
  AttentionArgs args;
  args.q = part(0);
  args.k = part(1);
  args.v = part(2);
  args.cu_q = cu;
  args.cu_k = cu;
  args.scale = 0.1F;
  args.causal = causal;
  const Tensor y(DType::kF32, {n, heads, d});
  const double pairs = static_cast<double>(causal ? n * (n + 1) / 2 : n * n);
  const double flops = 4.0 * pairs * static_cast<double>(heads * d);
  Ratios ratios;
  for (auto _ : state) {
    const Rate limit = probe.fp32_flops(0.01);
    const RateStopwatch watch(n_threads);
    attention(runtime, args, y);
    ratios.add(watch.rate(flops), limit);
    state.SetIterationTime(watch.wall_s());
  }
  ratios.report(state, "of_peak", "GFLOPS");
  state.SetLabel(runtime.attention.name);
}
BENCHMARK(BM_Attention)
    ->ArgNames({"tokens", "heads", "dim", "causal", "threads", "int8"})
    ->ArgsProduct({{577}, {16}, {64}, {0}, {1, 2}, {0, 1}})
    ->ArgsProduct({{640}, {32}, {128}, {1}, {1, 2}, {0, 1}})
    ->ArgsProduct({{64}, {16}, {80}, {0}, {1}, {0, 1}})
    ->UseManualTime()
    ->Iterations(15)
    ->Unit(benchmark::kMillisecond);

// Decoding: one new token over a long context, in pages.
void BM_Decode(benchmark::State& state) {
  const int n_context = static_cast<int>(state.range(0));
  const int heads = static_cast<int>(state.range(1));
  const int kv_heads = static_cast<int>(state.range(2));
  const auto dtype = static_cast<KvDType>(state.range(3));
  const int n_threads = static_cast<int>(state.range(4));
  const int d = 128;
  Runtime runtime(n_threads, false, active_features());
  MachineProbe probe(n_threads, active_features());
  const int n_pages = (n_context + 63) / 64;
  const std::int64_t layer_bytes = std::int64_t{2} * n_context * kv_heads * kv_row_size_bytes(dtype, d);
  const int n_layers = static_cast<int>(std::max<std::int64_t>(1, (std::int64_t{256} << 20) / layer_bytes));
  CpuKvCache cache({n_layers, kv_heads, d, 64, n_pages, dtype});
  const Tensor kv = numbers({n_context, kv_heads, d});
  std::vector<std::int32_t> slots(static_cast<std::size_t>(n_context));
  std::iota(slots.begin(), slots.end(), 0);
  for (int layer = 0; layer < n_layers; ++layer) kv_append(runtime, cache, layer, kv, kv, slots);
  std::vector<std::int32_t> pages(static_cast<std::size_t>(n_pages));
  std::iota(pages.begin(), pages.end(), 0);
  const KvSequence sequence = {0, 1, n_context, pages};
  const Tensor q = numbers({1, heads, d});
  const Tensor y(DType::kF32, {1, heads, d});
  Ratios ratios;
  for (auto _ : state) {
    const Rate limit = probe.read_bytes();
    const RateStopwatch watch(n_threads);
    for (int layer = 0; layer < n_layers; ++layer)
      paged_attention(runtime, cache, layer, {&sequence, 1}, 0.1F, q, y,
                      plan_paged_attention(runtime, cache, {&sequence, 1}, q));
    ratios.add(watch.rate(static_cast<double>(layer_bytes) * n_layers), limit);
    state.SetIterationTime(watch.wall_s());
  }
  ratios.report(state, "of_read", "GB/s");
  state.SetLabel(runtime.attention.name);
}
BENCHMARK(BM_Decode)
    ->ArgNames({"context", "heads", "kv_heads", "dtype", "threads"})
    ->ArgsProduct({{1024}, {32}, {32}, {0, 1, 2, 3, 4, 5}, {1, 2}})
    ->ArgsProduct({{1024}, {28}, {4}, {0, 1, 2, 3, 4, 5}, {1}})
    ->UseManualTime()
    ->Iterations(9)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace triptych::cpu
