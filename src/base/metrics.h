// Values that a running program shows of itself: counters, gauges and histograms with names and labels, as in
// OpenMetrics. An interface without a wire format: whoever measures asks for its values once and keeps the
// references; who serves them decides what stands behind.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triptych {

/// Only grows.
class Counter {
 public:
  virtual ~Counter() = default;
  /// `amount` >= 0.
  virtual void add(double amount) noexcept = 0;
};

class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void set(double value) noexcept = 0;
};

/// Counts observations by upper bounds.
class Histogram {
 public:
  virtual ~Histogram() = default;
  /// NaN is not counted.
  virtual void observe(double value) noexcept = 0;
};

/// What a value is called. Names and labels have OpenMetrics' characters ([a-zA-Z_:][a-zA-Z0-9_:]*, labels
/// without colons); names of counters end in "_total".
struct MetricId {
  std::string name;
  std::string help;                                              // one sentence; the same for all labels
  std::vector<std::pair<std::string, std::string>> labels = {};  // in the order they are shown
};

class Metrics {
 public:
  virtual ~Metrics() = default;
  /// The value of this name and these labels, made when it is first asked for; it lives as long as this. Any
  /// thread. Throws Error(kInternal) for a name that is not allowed, or that another kind of value has.
  virtual Counter& counter(const MetricId& id) = 0;
  virtual Gauge& gauge(const MetricId& id) = 0;
  /// `bounds` are upper bounds, ascending, the last bucket (infinity) left out; all labels of a name have the
  /// same.
  virtual Histogram& histogram(const MetricId& id, const std::vector<double>& bounds) = 0;
};

}  // namespace triptych
