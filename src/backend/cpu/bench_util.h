// Helpers of the benchmarks that compare with the machine's limits.
#pragma once

#include <time.h>

#include <algorithm>
#include <vector>

namespace triptych::cpu {

/// As MachineProbe: processor time of the one thread, else wall time.
inline double now_s(int n_threads) {
  timespec t{};
  clock_gettime(n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace triptych::cpu
