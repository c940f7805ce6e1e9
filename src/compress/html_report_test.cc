#include "compress/html_report.h"

#include <gmock/gmock.h>

namespace triptych::compress {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HtmlReport, SaysWhatBecameOfEachLinearAndTheGate) {
  CompressReport report;
  report.linears = {{.name = "a<b>.weight",
                     .part = "language",
                     .format = "int4:g128:sym",
                     .n_weights = 1 << 20,
                     .bits_per_weight = 4.125,
                     .error_nearest = 1e-2,
                     .error = 1e-3},
                    {.name = "exact.weight",
                     .part = "vision",
                     .format = "int8",
                     .n_weights = 1 << 10,
                     .bits_per_weight = 8,
                     .error_nearest = 0,
                     .error = 0}};
  report.kept = {"patch.weight"};
  QualityLoss loss;
  loss.before = {.n = 100, .n_right = 90};
  loss.after = {.n = 100, .n_right = 89};
  const std::string html = html_report({.model = "M & N",
                                        .out = "out",
                                        .data = "calib",
                                        .eval = "eval",
                                        .report = report,
                                        .loss = &loss,
                                        .gate = {{"accuracy>=-0.3", -1, false}}});
  EXPECT_THAT(html, HasSubstr("M &amp; N"));
  EXPECT_THAT(html, HasSubstr("a&lt;b&gt;.weight"));
  EXPECT_THAT(html, Not(HasSubstr("a<b>")));
  EXPECT_THAT(html, HasSubstr("90.00 %"));
  EXPECT_THAT(html, HasSubstr("class=\"failed\">failed"));
  EXPECT_THAT(html, HasSubstr("patch.weight"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html_report({.model = "", .out = "", .data = "", .eval = "", .report = {}}),
              HasSubstr("</html>"));
}

}  // namespace
}  // namespace triptych::compress
