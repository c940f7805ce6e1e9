// What a list of measured values looks like.
#pragma once

#include <cstddef>
#include <vector>

namespace triptych {

struct Percentiles {
  std::size_t n = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, highest = 0;
};

/// The value below which `share` (0 to 1) of the values lie, linear between neighbours as NumPy's default; 0
/// of none. `sorted` ascends.
double quantile(const std::vector<double>& sorted, double share) noexcept;

Percentiles percentiles_of(std::vector<double> values);

}  // namespace triptych
