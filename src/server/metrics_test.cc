#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace triptych::server {
namespace {

using testing::HasSubstr;

TEST(ServerMetrics, WritesCumulatedBuckets) {
  constexpr std::array bounds = {0.1, 1.0};
  LatencyHistogram histogram(bounds);
  for (const double value : {0.05, 0.1, 0.5, 7.0}) histogram.observe(value);
  histogram.observe(std::numeric_limits<double>::quiet_NaN());
  std::string out;
  histogram.write(out, "x");
  EXPECT_EQ(out,
            "x_bucket{le=\"0.1\"} 2\nx_bucket{le=\"1\"} 3\nx_bucket{le=\"+Inf\"} 4\nx_sum 7.65\nx_count 4\n");
}

TEST(ServerMetrics, CountsByRouteAndReason) {
  ServerMetrics metrics;
  metrics.count_http("/v1/models", 200);
  metrics.count_http("/v1/models", 200);
  metrics.count_finished("stop");
  const std::string text = metrics.text({.engine = {.n_running = 3}, .version = "1"});
  EXPECT_THAT(text, HasSubstr("triptych_http_requests_total{route=\"/v1/models\",status=\"200\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("triptych_request_success_total{finished_reason=\"stop\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("triptych_num_requests_running 3\n"));
}

}  // namespace
}  // namespace triptych::server
