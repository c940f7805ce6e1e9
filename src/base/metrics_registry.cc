#include "base/metrics_registry.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>

#include "base/error.h"

namespace triptych {
namespace {

bool is_word(std::string_view text, bool colons) {
  const auto is_letter = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colons && c == ':');
  };
  if (text.empty() || !is_letter(text.front())) return false;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

struct CounterValue final : Counter {
  std::atomic<double> value{0};
  void add(double amount) noexcept override {
    if (amount > 0) value.fetch_add(amount, std::memory_order_relaxed);
  }
};

struct GaugeValue final : Gauge {
  std::atomic<double> value{0};
  void set(double now) noexcept override { value.store(now, std::memory_order_relaxed); }
};

struct HistogramValue final : Histogram {
  explicit HistogramValue(const std::vector<double>& upper) : bounds(upper), counts(upper.size() + 1) {}
  const std::vector<double>& bounds;  // of the family
  std::vector<std::atomic<std::uint64_t>> counts;
  std::atomic<double> sum{0};
  void observe(double value) noexcept override {
    if (std::isnan(value)) return;
    const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
    counts[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
    sum.fetch_add(value, std::memory_order_relaxed);
  }
};

// One of the three.
struct Series {
  std::vector<std::pair<std::string, std::string>> labels;
  std::unique_ptr<CounterValue> counter;
  std::unique_ptr<GaugeValue> gauge;
  std::unique_ptr<HistogramValue> histogram;
};

MetricSample sample_of(const Series& series) {
  MetricSample out;
  out.labels = series.labels;
  if (series.counter) out.value = series.counter->value.load(std::memory_order_relaxed);
  if (series.gauge) out.value = series.gauge->value.load(std::memory_order_relaxed);
  if (!series.histogram) return out;
  for (const auto& count : series.histogram->counts) {
    out.buckets.push_back(count.load(std::memory_order_relaxed));
    out.count += out.buckets.back();
  }
  out.value = series.histogram->sum.load(std::memory_order_relaxed);
  return out;
}

}  // namespace

struct MetricsRegistry::Family {
  std::string name, help;
  MetricKind kind;
  std::vector<double> bounds;
  std::vector<std::unique_ptr<Series>> series;

  Series& series_of(const MetricId& id) {
    for (const auto& one : series)
      if (one->labels == id.labels) return *one;
    auto made = std::make_unique<Series>();
    made->labels = id.labels;
    if (kind == MetricKind::kCounter) made->counter = std::make_unique<CounterValue>();
    if (kind == MetricKind::kGauge) made->gauge = std::make_unique<GaugeValue>();
    if (kind == MetricKind::kHistogram) made->histogram = std::make_unique<HistogramValue>(bounds);
    series.push_back(std::move(made));
    return *series.back();
  }
};

std::string_view to_string(MetricKind kind) noexcept {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kHistogram:
      return "histogram";
  }
  return "unknown";
}

MetricsRegistry::MetricsRegistry() = default;
MetricsRegistry::~MetricsRegistry() = default;

// mutex_ is held.
MetricsRegistry::Family& MetricsRegistry::family_of(const MetricId& id, MetricKind kind,
                                                    const std::vector<double>& bounds) {
  TRIPTYCH_CHECK(is_word(id.name, true), "[metrics] \"{}\" is no name", id.name);
  for (const auto& [label, value] : id.labels)
    TRIPTYCH_CHECK(is_word(label, false), "[metrics] {}: \"{}\" is no label", id.name, label);
  TRIPTYCH_CHECK(std::is_sorted(bounds.begin(), bounds.end(), std::less_equal<>()),
                 "[metrics] {}: bounds do not ascend", id.name);
  for (const auto& family : families_) {
    if (family->name != id.name) continue;
    TRIPTYCH_CHECK(family->kind == kind && family->bounds == bounds,
                   "[metrics] {} is a {} already, or has other bounds", id.name, to_string(family->kind));
    return *family;
  }
  families_.push_back(std::make_unique<Family>(Family{id.name, id.help, kind, bounds, {}}));
  return *families_.back();
}

Counter& MetricsRegistry::counter(const MetricId& id) {
  const std::lock_guard lock(mutex_);
  return *family_of(id, MetricKind::kCounter, {}).series_of(id).counter;
}

Gauge& MetricsRegistry::gauge(const MetricId& id) {
  const std::lock_guard lock(mutex_);
  return *family_of(id, MetricKind::kGauge, {}).series_of(id).gauge;
}

Histogram& MetricsRegistry::histogram(const MetricId& id, const std::vector<double>& bounds) {
  const std::lock_guard lock(mutex_);
  return *family_of(id, MetricKind::kHistogram, bounds).series_of(id).histogram;
}

std::vector<MetricFamily> MetricsRegistry::snapshot() const {
  const std::lock_guard lock(mutex_);
  std::vector<MetricFamily> out;
  for (const auto& family : families_) {
    out.push_back({family->name, family->help, family->kind, family->bounds, {}});
    for (const auto& one : family->series) out.back().samples.push_back(sample_of(*one));
  }
  return out;
}

}  // namespace triptych
