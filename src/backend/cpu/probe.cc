#include "backend/cpu/probe.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/kernels/probe/probe.h"
#include "base/thread_pool.h"
#include "tensor/tensor.h"

namespace triptych {
namespace {

// Wall time; for one thread its processor time, which other programs on the machine disturb less.
double now_s(bool one_thread) {
  timespec t{};
  clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// a = 1 - 2^-10 and b = 1: chains of a x + b stay finite and normal.
struct alignas(64) Sink {
  float values[4] = {1.0F, 0.9990234375F, 1.0F, 0.0F};
};

}  // namespace

struct MachineProbe::State {
  State(int n_threads, Isa isa, std::size_t buffer_bytes)
      : kernels(kernels::probe_kernels(isa)),
        pool(n_threads),
        sinks(static_cast<std::size_t>(pool.n_threads())),
        buffer(Buffer::allocate(buffer_bytes / 4096 * 4096)) {
#if defined(MADV_HUGEPAGE)
    madvise(buffer.data(), buffer.size_bytes(), MADV_HUGEPAGE);  // a hint; fails harmlessly when misaligned
#endif
    std::memset(buffer.data(), 1, buffer.size_bytes());
  }

  double rate(double (*loop)(long, float*), double seconds) {
    if (loop == nullptr) return 0;
    // Find how many rounds fill the time, on this thread.
    long rounds = 1000;
    for (;;) {
      const double begin = now_s(true);
      loop(rounds, sinks[0].values);
      const double took = now_s(true) - begin;
      if (took > seconds / 8 || rounds > 1'000'000'000) {
        rounds =
            std::max(1L, static_cast<long>(static_cast<double>(rounds) * seconds / std::max(took, 1e-9)));
        break;
      }
      rounds *= 4;
    }
    std::vector<double> done(sinks.size(), 0.0);
    const bool one = pool.n_threads() == 1;
    const double begin = now_s(one);
    pool.run([&](int thread, int) {
      const auto t = static_cast<std::size_t>(thread);
      done[t] = loop(rounds, sinks[t].values);
    });
    const double took = now_s(one) - begin;
    double total = 0;
    for (const double d : done) total += d;
    return total / took;
  }

  const kernels::ProbeKernels& kernels;
  ThreadPool pool;
  std::vector<Sink> sinks;
  Buffer buffer;
};

MachineProbe::MachineProbe(int n_threads, Isa isa, std::size_t read_buffer_bytes)
    : state_(std::make_unique<State>(n_threads, isa, read_buffer_bytes)) {}
MachineProbe::~MachineProbe() = default;

int MachineProbe::n_threads() const noexcept { return state_->pool.n_threads(); }
double MachineProbe::fp32_flops_per_s(double seconds) { return state_->rate(state_->kernels.fma, seconds); }
double MachineProbe::int8_ops_per_s(double seconds) {
  return state_->rate(state_->kernels.int8_dot, seconds);
}
double MachineProbe::bf16_flops_per_s(double seconds) {
  return state_->rate(state_->kernels.bf16_dot, seconds);
}

double MachineProbe::read_bytes_per_s() {
  constexpr std::size_t kPiece_bytes = std::size_t{1} << 20;
  const std::size_t n = state_->buffer.size_bytes() / kPiece_bytes;
  const bool one = n_threads() == 1;
  const double begin = now_s(one);
  state_->pool.parallel_for(n, 1, [&](std::size_t first, std::size_t last, int thread) {
    state_->kernels.read(state_->buffer.data() + first * kPiece_bytes, (last - first) * kPiece_bytes,
                         state_->sinks[static_cast<std::size_t>(thread)].values);
  });
  return static_cast<double>(n * kPiece_bytes) / (now_s(one) - begin);
}

MachineLimits MachineProbe::measure(int n_rounds) {
  MachineLimits best;
  best.n_threads = n_threads();
  for (int i = 0; i < n_rounds; ++i) {
    best.fp32_flops_per_s = std::max(best.fp32_flops_per_s, fp32_flops_per_s());
    best.read_bytes_per_s = std::max(best.read_bytes_per_s, read_bytes_per_s());
    best.int8_ops_per_s = std::max(best.int8_ops_per_s, int8_ops_per_s());
    best.bf16_flops_per_s = std::max(best.bf16_flops_per_s, bf16_flops_per_s());
  }
  return best;
}

}  // namespace triptych
