#include "report/percentiles.h"

#include <algorithm>
#include <numeric>

namespace triptych {

double quantile(const std::vector<double>& sorted, double share) noexcept {
  if (sorted.empty()) return 0;
  const double at = std::clamp(share, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

Percentiles percentiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.n = values.size(),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = quantile(values, 0.5),
          .p90 = quantile(values, 0.9),
          .p99 = quantile(values, 0.99),
          .highest = values.back()};
}

}  // namespace triptych
