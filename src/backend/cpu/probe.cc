#include "backend/cpu/probe.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "backend/cpu/kernels/probe/probe.h"
#include "base/thread_pool.h"
#include "tensor/tensor.h"

namespace triptych {
namespace {

constexpr std::size_t kPiece_bytes = std::size_t{1} << 20;
constexpr std::size_t kHugePage_bytes = std::size_t{2} << 20;

double seconds_of(clockid_t clock) noexcept {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// One thread's own time, or that of all.
clockid_t cpu_clock(int n_threads) noexcept {
  return n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID;
}

// a = 1 - 2^-10 and b = 1: chains of a x + b stay finite and normal.
struct alignas(64) Sink {
  float values[4] = {1.0F, 0.9990234375F, 1.0F, 0.0F};
};

}  // namespace

struct MachineProbe::State {
  State(int n_threads, CpuFeatures features, std::size_t buffer_bytes)
      : kernels(kernels::probe_kernels(features)),
        pool(n_threads),
        sinks(static_cast<std::size_t>(pool.n_threads())),
        buffer(Buffer::allocate(buffer_bytes + kHugePage_bytes)),
        data(buffer.data() +
             (kHugePage_bytes - reinterpret_cast<std::uintptr_t>(buffer.data()) % kHugePage_bytes)),
        n_pieces(std::max<std::size_t>(1, buffer_bytes / kPiece_bytes)) {
#if defined(MADV_HUGEPAGE)
    madvise(data, buffer_bytes, MADV_HUGEPAGE);  // a hint
#endif
    std::memset(data, 1, buffer_bytes);
  }

  Rate rate(double (*loop)(long, float*), double seconds) {
    if (loop == nullptr) return {};
    // Find how many rounds fill the time, on this thread.
    long rounds = 1000;
    for (;;) {
      const double begin_s = seconds_of(CLOCK_THREAD_CPUTIME_ID);
      loop(rounds, sinks[0].values);
      const double took_s = seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin_s;
      if (took_s > seconds / 8 || rounds > 1'000'000'000) {
        const double fill = static_cast<double>(rounds) * seconds / std::max(took_s, 1e-9);
        rounds = std::max(1L, static_cast<long>(fill));
        break;
      }
      rounds *= 4;
    }
    std::vector<double> done(sinks.size(), 0.0);
    const RateStopwatch watch(pool.n_threads());
    pool.run([&](int thread, int) {
      const auto t = static_cast<std::size_t>(thread);
      done[t] = loop(rounds, sinks[t].values);
    });
    double total = 0;
    for (const double d : done) total += d;
    return watch.rate(total);
  }

  const kernels::ProbeKernels& kernels;
  ThreadPool pool;
  std::vector<Sink> sinks;
  Buffer buffer;
  std::byte* data;
  std::size_t n_pieces;  // of the buffer, for read_bytes
};

MachineProbe::MachineProbe(int n_threads, CpuFeatures features, std::size_t read_buffer_bytes)
    : state_(std::make_unique<State>(n_threads, features, read_buffer_bytes)) {}
MachineProbe::~MachineProbe() = default;

int MachineProbe::n_threads() const noexcept { return state_->pool.n_threads(); }
Rate MachineProbe::fp32_flops(double seconds) { return state_->rate(state_->kernels.fma, seconds); }
Rate MachineProbe::int8_ops(double seconds) { return state_->rate(state_->kernels.int8_dot, seconds); }
Rate MachineProbe::bf16_flops(double seconds) { return state_->rate(state_->kernels.bf16_dot, seconds); }

Rate MachineProbe::read_bytes() {
  const std::size_t n = state_->n_pieces;
  const RateStopwatch watch(n_threads());
  state_->pool.parallel_for(n, 1, [&](std::size_t first, std::size_t last, int thread) {
    state_->kernels.read(state_->data + first * kPiece_bytes, (last - first) * kPiece_bytes,
                         state_->sinks[static_cast<std::size_t>(thread)].values);
  });
  return watch.rate(static_cast<double>(n * kPiece_bytes));
}

Rate MachineProbe::read_again(std::size_t n_bytes) {
  constexpr std::size_t kUnit_bytes = 1024;  // what the kernels read at least
  constexpr std::size_t kEnough_bytes = std::size_t{64} << 20;
  const auto threads = static_cast<std::size_t>(n_threads());
  const std::size_t most = state_->n_pieces * kPiece_bytes / threads;
  const std::size_t part =
      std::max(kUnit_bytes, std::min(n_bytes / threads, most) / kUnit_bytes * kUnit_bytes);
  const std::size_t n_passes = std::max<std::size_t>(4, kEnough_bytes / threads / part);
  const auto pass = [&](std::size_t thread) {
    state_->kernels.read(state_->data + thread * part, part, state_->sinks[thread].values);
  };
  state_->pool.run([&](int thread, int) { pass(static_cast<std::size_t>(thread)); });
  const RateStopwatch watch(n_threads());
  state_->pool.run([&](int thread, int) {
    for (std::size_t i = 0; i < n_passes; ++i) pass(static_cast<std::size_t>(thread));
  });
  return watch.rate(static_cast<double>(part * n_passes * threads));
}

MeasuredLimits MachineProbe::measure(int n_rounds) {
  std::vector<double> fp32, read, int8, bf16;
  for (int i = 0; i < std::max(n_rounds, 1); ++i) {
    fp32.push_back(fp32_flops().wall);
    read.push_back(read_bytes().wall);
    int8.push_back(int8_ops().wall);
    bf16.push_back(bf16_flops().wall);
  }
  for (auto* rates : {&fp32, &read, &int8, &bf16}) std::sort(rates->begin(), rates->end());
  const auto at = [&](std::size_t rank) {
    return MachineLimits{.n_threads = n_threads(),
                         .fp32_flops_per_s = fp32[rank],
                         .read_bytes_per_s = read[rank],
                         .int8_ops_per_s = int8[rank],
                         .bf16_flops_per_s = bf16[rank]};
  };
  return {.median = at(fp32.size() / 2), .lowest = at(0), .highest = at(fp32.size() - 1)};
}

RateStopwatch::RateStopwatch(int n_threads) noexcept
    : n_threads_(n_threads),
      wall_begin_s_(seconds_of(CLOCK_MONOTONIC)),
      cpu_begin_s_(seconds_of(cpu_clock(n_threads))) {}

double RateStopwatch::wall_s() const noexcept { return seconds_of(CLOCK_MONOTONIC) - wall_begin_s_; }

Rate RateStopwatch::rate(double amount) const noexcept {
  const double cpu_s = seconds_of(cpu_clock(n_threads_)) - cpu_begin_s_;
  return {amount / std::max(wall_s(), 1e-9), amount * n_threads_ / std::max(cpu_s, 1e-9)};
}

}  // namespace triptych
