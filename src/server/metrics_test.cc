#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "engine/engine_metrics.h"

namespace triptych::server {
namespace {

using testing::HasSubstr;

TEST(ServerMetrics, CountsByRouteAndShowsTheMoment) {
  ServerMetrics metrics;
  metrics.count_http("/v1/models", 200, 0.5);
  metrics.count_http("/v1/models", 200, 0.5);
  metrics.count_http("/v1/models", 401, 0.5);
  metrics.count_image(1000);
  const std::string text = metrics.text({.engine = {.n_steps = 3}, .n_connections = 2, .version = "1"});
  EXPECT_THAT(text, HasSubstr("triptych_http_requests_total{route=\"/v1/models\",status=\"200\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("triptych_http_requests_total{route=\"/v1/models\",status=\"401\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("triptych_http_request_duration_seconds_count{route=\"/v1/models\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("triptych_image_bytes_total 1000\n"));
  EXPECT_THAT(text, HasSubstr("triptych_steps_total 3\n"));
  EXPECT_THAT(text, HasSubstr("triptych_http_connections 2\n"));
  EXPECT_THAT(text, HasSubstr("triptych_build_info{version=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nprocess_resident_memory_bytes "));
}

// What `promtool check metrics` asks of names, for the server's and the engine's together.
TEST(ServerMetrics, NamesAreAsPrometheusWantsThem) {
  ServerMetrics metrics;
  const EngineMetrics engine(metrics.registry());
  metrics.count_http("/", 200, 0.5);
  std::istringstream lines(metrics.text({}));
  std::set<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE ", 0) != 0) continue;
    std::istringstream words(line.substr(7));
    std::string name, kind;
    words >> name >> kind;
    EXPECT_TRUE(names.insert(name).second) << name << " twice";
    EXPECT_EQ(name.find(':'), std::string::npos) << name << ": colons are for recording rules";
    EXPECT_TRUE(std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    })) << name;
    const bool is_total = name.size() > 6 && name.substr(name.size() - 6) == "_total";
    EXPECT_EQ(is_total, kind == "counter") << name;
  }
  for (const char* stage : {"media_download", "media_decode", "preprocessing_total", "encoder"})
    EXPECT_EQ(names.count(std::string("triptych_mm_") + stage + "_latency_seconds"), 1U) << stage;
  EXPECT_EQ(names.count("triptych_mm_cache_hits_total"), 1U);
}

}  // namespace
}  // namespace triptych::server
