// Metrics kept in memory, and how they stand at a moment.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/metrics.h"

namespace triptych {

enum class MetricKind { kCounter, kGauge, kHistogram };
/// "counter", "gauge", "histogram".
std::string_view to_string(MetricKind kind) noexcept;

/// One value of a family.
struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;                    // of a counter or gauge; of a histogram the sum of what was observed
  std::vector<std::uint64_t> buckets;  // observations by bound, not cumulated; the last is above all bounds
  std::uint64_t count = 0;             // of observations
};

/// All values of a name.
struct MetricFamily {
  std::string name, help;
  MetricKind kind = MetricKind::kCounter;
  std::vector<double> bounds;  // of a histogram
  std::vector<MetricSample> samples;
};

class MetricsRegistry final : public Metrics {
 public:
  MetricsRegistry();
  ~MetricsRegistry() override;
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  Counter& counter(const MetricId& id) override;
  Gauge& gauge(const MetricId& id) override;
  Histogram& histogram(const MetricId& id, const std::vector<double>& bounds) override;

  /// Families in the order in which they were made. Values that change meanwhile may be of different moments.
  std::vector<MetricFamily> snapshot() const;

 private:
  struct Family;
  Family& family_of(const MetricId& id, MetricKind kind, const std::vector<double>& bounds);

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Family>> families_;
};

}  // namespace triptych
