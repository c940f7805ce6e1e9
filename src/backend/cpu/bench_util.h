// Helpers of the benchmarks that compare with the machine's limits.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/cpu/probe.h"

namespace triptych::cpu {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Ratios of what was reached to a limit measured just before, by wall time and by processor time. On a busy
/// machine the second is the one to read.
class Ratios {
 public:
  void add(const Rate& reached, const Rate& limit) {
    rate_.push_back(reached.cpu);
    wall_.push_back(reached.wall / limit.wall);
    cpu_.push_back(reached.cpu / limit.cpu);
  }
  /// Medians as counters: "<of>" and "<of>_wall" as ratios, `unit` in 1e9 a second.
  void report(benchmark::State& state, const std::string& of, const std::string& unit) const {
    state.counters[of] = median(cpu_);
    state.counters[of + "_wall"] = median(wall_);
    state.counters[unit] = median(rate_) / 1e9;
  }

 private:
  std::vector<double> rate_;
  std::vector<double> wall_;
  std::vector<double> cpu_;
};

/// Measures limit() and work() in turn, `amount` being what work() does, in the unit of limit()'s rates, and
/// reports their ratios (Ratios::report).
template <typename Limit, typename Work>
void measure_against(benchmark::State& state, int n_threads, double amount, const std::string& of,
                     const std::string& unit, Limit limit, Work work) {
  Ratios ratios;
  for (auto _ : state) {
    const Rate possible = limit();
    const RateStopwatch watch(n_threads);
    work();
    const Rate reached = watch.rate(amount);
    state.SetIterationTime(watch.wall_s());
    ratios.add(reached, possible);
  }
  ratios.report(state, of, unit);
}

}  // namespace triptych::cpu
