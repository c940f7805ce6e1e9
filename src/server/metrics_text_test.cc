#include "server/metrics_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace triptych::server {
namespace {

TEST(MetricsText, CumulatesBucketsAndEndsWithSumAndCount) {
  MetricsRegistry registry;
  Histogram& histogram = registry.histogram({"x_seconds", "How long.", {{"route", "/a"}}}, {0.1, 1});
  for (const double value : {0.05, 0.1, 0.5, 7.0}) histogram.observe(value);
  EXPECT_EQ(metrics_text(registry.snapshot()),
            "# HELP x_seconds How long.\n"
            "# TYPE x_seconds histogram\n"
            "x_seconds_bucket{route=\"/a\",le=\"0.1\"} 2\n"
            "x_seconds_bucket{route=\"/a\",le=\"1\"} 3\n"
            "x_seconds_bucket{route=\"/a\",le=\"+Inf\"} 4\n"
            "x_seconds_sum{route=\"/a\"} 7.65\n"
            "x_seconds_count{route=\"/a\"} 4\n");
}

// Help and labels may hold anything; a line must stay a line.
TEST(MetricsText, EscapesWhatWouldEndALineOrALabel) {
  MetricsRegistry registry;
  registry.counter({"x_total", "a\\b\n\"c\"", {{"name", "q\"\\\n"}}}).add(2);
  EXPECT_EQ(metrics_text(registry.snapshot()),
            "# HELP x_total a\\\\b\\n\"c\"\n"
            "# TYPE x_total counter\n"
            "x_total{name=\"q\\\"\\\\\\n\"} 2\n");
}

TEST(MetricsText, WritesNumbersAsPrometheusReadsThem) {
  const auto of = [](double value) {
    const MetricFamily family{"g", "h", MetricKind::kGauge, {}, {{{}, value, {}, 0}}};
    const std::string text = metrics_text(std::span(&family, 1));
    return text.substr(text.rfind("g "));
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(of(0), "g 0\n");
  EXPECT_EQ(of(0.25), "g 0.25\n");
  EXPECT_EQ(of(1e12), "g 1000000000000\n");
  EXPECT_EQ(of(kInfinity), "g +Inf\n");
  EXPECT_EQ(of(-kInfinity), "g -Inf\n");
  EXPECT_EQ(of(std::numeric_limits<double>::quiet_NaN()), "g NaN\n");
}

TEST(MetricsText, LeavesOutFamiliesWithoutSamples) {
  const MetricFamily family{"g", "h", MetricKind::kGauge, {}, {}};
  EXPECT_EQ(metrics_text(std::span(&family, 1)), "");
}

}  // namespace
}  // namespace triptych::server
