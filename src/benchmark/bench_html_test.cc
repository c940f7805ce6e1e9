// The HTML report: a file that parses, whatever the names in it.
#include "benchmark/bench_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "benchmark/testing/well_formed.h"

namespace triptych {
namespace {

using testing::HasSubstr;

const MachineLimits kLimits{.n_threads = 2,
                            .fp32_flops_per_s = 2e11,
                            .read_bytes_per_s = 2e10,
                            .int8_ops_per_s = 9e11,
                            .bf16_flops_per_s = 4e11};

TEST(BenchHtml, IsOneWellFormedFileAndEscapesNames) {
  BenchRun run;
  run.model = "</h2><script>alert(1)</script> & \"x\"";
  run.weights = "int8'";
  run.report.stages = {{.name = "prefill",
                        .ms = 5,
                        .lowest_ms = 5,
                        .highest_ms = 5,
                        .n_items = 20,
                        .unit = "tokens",
                        .cost = {.flops = 1e9, .int8_ops = 0, .bytes = 1e7}}};
  run.report.parts = {{"prefill", "down", 2, 4.0, {.flops = 1e9, .int8_ops = 0, .bytes = 1e7}},
                      {"prefill", "<qkv>", 2, 1.0, {.flops = 1e8, .int8_ops = 0, .bytes = 1e6}}};
  run.report.timeline = {{"prefill", 1, 1000, 1000}, {"down", 1, 1000, 400}, {"<qkv>", 2, 1400, 250}};
  const std::string html = bench_html({run, run}, kLimits);
  ASSERT_THAT(html, testing::StartsWith("<!DOCTYPE html>\n"));
  expect_well_formed(html);
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(html, HasSubstr("&lt;qkv&gt;"));
  EXPECT_THAT(html, HasSubstr("class=\"roofline\""));
  EXPECT_THAT(html, HasSubstr("class=\"heat\""));
  run.report.parts.clear();
  run.report.timeline.clear();
  expect_well_formed(bench_html({run}, MachineLimits{}));
}

}  // namespace
}  // namespace triptych
