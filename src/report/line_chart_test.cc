// Charts of lines: where points come to lie, ticks, and distributions.
#include "report/line_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace triptych {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(LineChart, PointsLieBetweenTheAxes) {
  const std::string html = line_chart_html(
      {.title = "t <&>", .series = {{"a", {{0, 0}, {5, 1}, {10, 2}}}}, .is_filled = true, .y_high = 4});
  EXPECT_THAT(html, HasSubstr("t &lt;&amp;&gt;"));
  EXPECT_THAT(html, HasSubstr("points=\"64.0,194.0 476.0,148.0 888.0,102.0\" fill=\"none\""));
  EXPECT_THAT(html, HasSubstr("<polygon"));
  EXPECT_THAT(html, HasSubstr(">4</text>"));
  EXPECT_THAT(html, Not(HasSubstr("class=\"legend\""))) << "one line needs none";
}

TEST(LineChart, LogarithmicAxisAndLegend) {
  const std::string html =
      line_chart_html({.title = "t",
                       .series = {{"a<", {{1, 0}, {10, 0.5}, {100, 1}}}, {"b", {{0, 1}, {10, std::nan("")}}}},
                       .x_is_log = true});
  EXPECT_THAT(html, HasSubstr("points=\"64.0,194.0 476.0,102.0 888.0,10.0\" fill=\"none\""));
  EXPECT_THAT(html, HasSubstr("a&lt;</span>"));
  EXPECT_THAT(html, HasSubstr(">50</text>"));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(LineChart, TakesNothingAndOneValue) {
  for (const LineChart& chart :
       {LineChart{.title = "t", .series = {}}, LineChart{.title = "t", .series = {{"a", {}}}},
        LineChart{.title = "t", .series = {{"a", {{3, 0}}}}},
        LineChart{.title = "t", .series = {{"a", {{3, 7}}}}, .x_is_log = true}}) {
    const std::string html = line_chart_html(chart);
    EXPECT_THAT(html, HasSubstr("</svg>"));
    EXPECT_THAT(html, Not(HasSubstr("nan")));
    EXPECT_THAT(html, Not(HasSubstr("inf")));
  }
}

TEST(LineChart, CumulativeShares) {
  const ChartSeries series = cumulative("x", {3, 1, 2, 4});
  ASSERT_EQ(series.points.size(), 4U);
  EXPECT_EQ(series.points[0], (std::pair<double, double>{1, 0.25}));
  EXPECT_EQ(series.points[3], (std::pair<double, double>{4, 1.0}));
  std::vector<double> many;
  for (int i = 0; i < 10000; ++i) many.push_back(i);
  const ChartSeries thinned = cumulative("x", many, 50);
  EXPECT_EQ(thinned.points.size(), 50U);
  EXPECT_EQ(thinned.points.back().first, 9999);
  EXPECT_TRUE(cumulative("x", {}).points.empty());
}

}  // namespace
}  // namespace triptych
