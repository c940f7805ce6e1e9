// The page of a run: it parses whatever the names, and shows threads, charts and the roofline.
#include "benchmark/serve_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "benchmark/testing/small_llava.h"
#include "benchmark/testing/well_formed.h"

namespace triptych {
namespace {

using testing::HasSubstr;
using testing::Not;

const MachineLimits kLimits{.n_threads = 2, .fp32_flops_per_s = 2e11, .read_bytes_per_s = 2e10};

TEST(ServeHtml, ShowsARun) {
  const auto model = LoadedModel::with_random_weights(small_llava_config(), DType::kF32, {.n_threads = 2});
  TraceMix mix;
  mix.n_requests = 8;
  mix.sides_px = {56, 84};
  mix.prompt_tokens = {3, 40};
  mix.answer_tokens = {2, 9};
  ServeReport report;
  report.model = "</h1><script>alert(1)</script>";
  report.weights = "int8'";
  report.load = "3 clients <in> a loop";
  report.options.n_clients = 3;
  report.options.timeline = true;
  report.run = run_serve(*model, make_trace(mix), report.options);
  ASSERT_FALSE(report.run.busy.empty());
  BenchReport parts;
  parts.parts = {{"decode", "<qkv>", 2, 1.0, {.flops = 1e8, .int8_ops = 0, .bytes = 1e6}}};
  const std::string html = serve_html(report, parts, kLimits);
  expect_well_formed(html);
  for (const char* part : {"&lt;script&gt;alert(1)", "3 clients &lt;in&gt;", ">engine 0</text>",
                           ">prepare</text>", "8 answered, 0 failed", "Cache blocks in use", "between tokens",
                           "class=\"roofline\"", "&lt;qkv&gt;", "prefers-color-scheme: dark"})
    EXPECT_THAT(html, HasSubstr(part));
  expect_well_formed(serve_html(report, {}, kLimits));
  EXPECT_THAT(serve_html(report, {}, kLimits), Not(HasSubstr("class=\"roofline\"")));
}

// A run in which nothing came of anything.
TEST(ServeHtml, ShowsAnEmptyRun) {
  const std::string html = serve_html({}, {}, MachineLimits{});
  expect_well_formed(html);
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace triptych
