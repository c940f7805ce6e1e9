// Counters, gauges and histograms in memory: what is kept, from several threads, and names that are refused.
#include "base/metrics_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "base/error.h"

namespace triptych {
namespace {

using testing::ElementsAre;

TEST(MetricsRegistry, KeepsValuesByNameAndLabels) {
  MetricsRegistry metrics;
  Counter& stops = metrics.counter({"x:ends_total", "Ends.", {{"reason", "stop"}}});
  metrics.counter({"x:ends_total", "Ends.", {{"reason", "length"}}}).add(2);
  stops.add(1);
  stops.add(-5);
  EXPECT_EQ(&metrics.counter({"x:ends_total", "Ends.", {{"reason", "stop"}}}), &stops);
  Gauge& gauge = metrics.gauge({"x:running", "Now."});
  gauge.set(3);
  gauge.set(2);
  const std::vector<MetricFamily> all = metrics.snapshot();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "x:ends_total");
  EXPECT_EQ(all[0].help, "Ends.");
  EXPECT_EQ(to_string(all[0].kind), "counter");
  ASSERT_EQ(all[0].samples.size(), 2U);
  EXPECT_EQ(all[0].samples[0].value, 1) << "a counter never falls";
  EXPECT_EQ(all[0].samples[1].labels[0].second, "length");
  EXPECT_EQ(all[0].samples[1].value, 2);
  EXPECT_EQ(all[1].samples[0].value, 2);
}

// A bound belongs to its bucket ("le" of Prometheus).
TEST(MetricsRegistry, HistogramsCountByUpperBound) {
  MetricsRegistry metrics;
  Histogram& histogram = metrics.histogram({"x_seconds", "Times."}, {0.1, 1, 10});
  for (const double value : {0.05, 0.1, 0.11, 1.0, 9.0, 11.0, std::numeric_limits<double>::quiet_NaN()})
    histogram.observe(value);
  const MetricSample sample = metrics.snapshot()[0].samples[0];
  EXPECT_THAT(sample.buckets, ElementsAre(2, 2, 1, 1));
  EXPECT_EQ(sample.count, 6U);
  EXPECT_NEAR(sample.value, 21.26, 1e-12);
}

TEST(MetricsRegistry, LosesNothingBetweenThreads) {
  MetricsRegistry metrics;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      Counter& counter = metrics.counter({"x_total", "x"});
      Histogram& histogram = metrics.histogram({"y", "y"}, {0.5});
      for (int i = 0; i < 10000; ++i) {
        counter.add(1);
        histogram.observe(i % 2);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const MetricFamily& family : metrics.snapshot()) {
    const MetricSample& sample = family.samples.front();
    EXPECT_EQ(sample.value, family.kind == MetricKind::kCounter ? 40000 : 20000);
    if (family.kind == MetricKind::kHistogram) {
      EXPECT_THAT(sample.buckets, ElementsAre(20000, 20000));
    }
  }
}

TEST(MetricsRegistry, RefusesNamesThatCannotBeShown) {
  MetricsRegistry metrics;
  metrics.counter({"a_total", "x"});
  metrics.histogram({"h", "x"}, {1, 2});
  EXPECT_THROW(metrics.gauge({"a_total", "x"}), Error) << "it is a counter";
  EXPECT_THROW(metrics.histogram({"h", "x"}, {1, 3}), Error) << "other bounds";
  EXPECT_THROW(metrics.histogram({"g", "x"}, {2, 1}), Error);
  EXPECT_THROW(metrics.histogram({"g", "x"}, {1, 1}), Error);
  for (const char* name : {"", "1a", "a b", "a-b", "a\n"})
    EXPECT_THROW(metrics.counter({name, "x"}), Error) << name;
  EXPECT_THROW(metrics.counter({"b_total", "x", {{"a:b", "v"}}}), Error);
  EXPECT_EQ(metrics.snapshot().size(), 2U);
}

}  // namespace
}  // namespace triptych
