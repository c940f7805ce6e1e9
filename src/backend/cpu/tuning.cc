#include "backend/cpu/tuning.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/cpu/kernels/probe/probe.h"
#include "backend/cpu/kernels/select.h"

namespace triptych {
namespace {

double thread_seconds() noexcept {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Best rates of several loops that run in turn, each for a fraction of a millisecond at a time: other
// programs and changes of the clock meet all of them.
class ShortProbe {
 public:
  using Loop = double (*)(long rounds, float* sink);

  void add(Loop loop, double* rate) {
    if (loop == nullptr) return;
    if (const long rounds = rounds_for(loop); rounds > 0) entries_.push_back({loop, rate, rounds});
  }
  void run() {
    constexpr int kTimes = 5;
    for (int i = 0; i < kTimes; ++i)
      for (const Entry& entry : entries_) {
        const double begin_s = thread_seconds();
        const double done = entry.loop(entry.rounds, sink_);
        const double took_s = thread_seconds() - begin_s;
        if (took_s > kSlice_s / 16) *entry.rate = std::max(*entry.rate, done / took_s);
      }
  }

 private:
  struct Entry {
    Loop loop;
    double* rate;
    long rounds;
  };
  static constexpr double kSlice_s = 0.4e-3;

  // 0 where the clock advances in ticks too long to measure with, as in some sandboxes: the rate stays
  // unknown.
  long rounds_for(Loop loop) {
    for (long rounds = 100;; rounds *= 4) {
      const double begin_s = thread_seconds();
      loop(rounds, sink_);
      const double took_s = thread_seconds() - begin_s;
      if (took_s > 8 * kSlice_s && rounds > 100) return 0;
      if (took_s > kSlice_s / 8 || rounds > 100'000'000)
        return std::max(1L,
                        static_cast<long>(static_cast<double>(rounds) * kSlice_s / std::max(took_s, 1e-9)));
    }
  }

  std::vector<Entry> entries_;
  alignas(64) float sink_[4] = {1.0F, 0.9990234375F, 1.0F, 0.0F};  // as the kernels of kernels/probe want it
};

}  // namespace

CpuTuning tuning_from(CpuFeatures features, const TuningProbe& probe) noexcept {
  CpuTuning out;
  // On the processors that were measured the ratio is 2, 1/2, or with tiles 16: the limit is far from each.
  constexpr double kGain = 1.2;
  out.bf16_gains = probe.fp32_flops_per_s > 0 && probe.bf16_flops_per_s > kGain * probe.fp32_flops_per_s;
  if (features.has_all(kernels::kNeedsAvx2)) out.int4_streamed_rows = 48;
  // A tile takes 16 rows' time whatever it holds, and loads of the weight are no fewer. Where tiles have less
  // than four times the rate, as when a sibling uses the unit, more rows are needed to fill them.
  constexpr double kUsual = 4;
  const double ratio = probe.int8_ops_per_s > 0 ? probe.tile_int8_ops_per_s / probe.int8_ops_per_s : kUsual;
  if (ratio > 0 && ratio < kUsual)
    out.tile_rows = std::max(out.tile_rows,
                             static_cast<std::int64_t>(static_cast<double>(out.tile_rows) * kUsual / ratio));
  // Half of the second-level cache is left to rows and products.
  out.tile_group_bytes =
      std::max(out.panel_group_bytes, static_cast<std::int64_t>(probe.second_cache_bytes / 2));
  return out;
}

TuningProbe probe_for_tuning(CpuFeatures features, bool with_bf16) {
  TuningProbe out;
#if defined(_SC_LEVEL2_CACHE_SIZE)
  out.second_cache_bytes = static_cast<std::size_t>(std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE)));
#endif
  const kernels::ProbeKernels& all = kernels::probe_kernels(features);
  ShortProbe probe;
  if (with_bf16 && all.bf16_dot != nullptr) {
    probe.add(all.fma, &out.fp32_flops_per_s);
    probe.add(all.bf16_dot, &out.bf16_flops_per_s);
  }
  if (features.has_all(kernels::kNeedsAmxInt8 | kernels::kNeedsAvx512Bf16)) {  // the probe's loops need both
    probe.add(kernels::probe_kernels(features - kTileFeatures).int8_dot, &out.int8_ops_per_s);
    probe.add(all.int8_dot, &out.tile_int8_ops_per_s);
  }
  probe.run();
  return out;
}

const CpuTuning& measured_tuning(CpuFeatures features, bool with_bf16) {
  static std::mutex mutex;
  static std::map<std::pair<std::uint64_t, bool>, CpuTuning> known;
  const std::scoped_lock lock(mutex);
  const std::pair<std::uint64_t, bool> key{features.bits(), with_bf16};
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known.emplace(key, tuning_from(features, probe_for_tuning(features, with_bf16))).first->second;
}

}  // namespace triptych
