// What a call costs when its body does nothing: the price of spreading an operation over threads.
#include <benchmark/benchmark.h>

#include "base/thread_pool.h"

namespace triptych {
namespace {

void parallel_for_empty(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const auto n_pieces = static_cast<std::size_t>(state.range(1));
  for (auto _ : state) pool.parallel_for(n_pieces, 1, [](std::size_t, std::size_t, int) {});
}
BENCHMARK(parallel_for_empty)->ArgsProduct({{1, 2, 4}, {1, 4, 64}})->UseRealTime();

void run_empty(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) pool.run([](int, int) {});
}
BENCHMARK(run_empty)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();

}  // namespace
}  // namespace triptych
