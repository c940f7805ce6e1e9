// The arithmetic of the chart.
#include "report/roofline_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

namespace triptych {
namespace {

using testing::HasSubstr;
using testing::Not;

const MachineLimits kLimits{.n_threads = 2,
                            .fp32_flops_per_s = 2e11,
                            .read_bytes_per_s = 2e10,
                            .int8_ops_per_s = 9e11,
                            .bf16_flops_per_s = 4e11};

TEST(Roofline, PointsAreWhatTheCostsSay) {
  const std::vector<PartTiming> parts = {
      {"prefill", "norm", 2, 1.0, {}},
      {"prefill", "mlp.down_proj", 2, 4.0, {.flops = 1e9, .int8_ops = 3e9, .bytes = 1e8}},
      {"decode", "attention", 2, 0, {.flops = 1e6, .int8_ops = 0, .bytes = 1e6}}};
  const std::vector<RooflinePoint> points = roofline_points(parts);
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0].number, 1);
  EXPECT_EQ(points[0].part, &parts[1]);
  EXPECT_DOUBLE_EQ(points[0].ops_per_byte, 40);
  EXPECT_DOUBLE_EQ(points[0].ops_per_s, 1e12);
}

TEST(Roofline, TheRidgeIsWhereTheSlopeMeetsTheCeiling) {
  const std::string svg = roofline_svg({}, kLimits);
  // The slope's upper end and the beginning of int8's ceiling are one point of the chart.
  const std::regex line("class=\"roof\" x1=\"([0-9.]+)\" y1=\"([0-9.]+)\" x2=\"([0-9.]+)\" y2=\"([0-9.]+)\"");
  std::vector<std::smatch> lines;
  for (std::sregex_iterator it(svg.begin(), svg.end(), line), end; it != end; ++it) lines.push_back(*it);
  ASSERT_EQ(lines.size(), 4U);  // int8, bf16, fp32, read
  EXPECT_EQ(lines[0][1], lines[3][3]);
  EXPECT_EQ(lines[0][2], lines[3][4]);
  EXPECT_LT(std::stod(lines[0][2]), std::stod(lines[1][2]));  // int8 lies higher, so its y is smaller
  EXPECT_LT(std::stod(lines[1][2]), std::stod(lines[2][2]));
  MachineLimits few = kLimits;
  few.bf16_flops_per_s = few.int8_ops_per_s = 0;
  EXPECT_THAT(roofline_svg({}, few), Not(HasSubstr("int8")));
  EXPECT_THAT(roofline_svg({}, MachineLimits{}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace triptych
