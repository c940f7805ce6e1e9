#include "compress/sensitivity.h"

#include <gtest/gtest.h>

namespace triptych::compress {
namespace {

// 100 weights each, in 4 and 8 bits.
const std::vector<std::vector<Choice>> kChoices = {
    {{50, 0.9}, {100, 0.1}}, {{50, 0.5}, {100, 0.4}}, {{50, 0.3}, {100, 0.0}}};

TEST(Sensitivity, TheFrontFallsFromTheSmallestToTheLargest) {
  const std::vector<FrontPoint> front = promised_front(kChoices, 300);
  ASSERT_EQ(front.size(), 4U);
  EXPECT_DOUBLE_EQ(front.front().bits, 4);
  EXPECT_DOUBLE_EQ(front.front().divergence, 1.7);
  EXPECT_DOUBLE_EQ(front.back().bits, 8);
  EXPECT_NEAR(front.back().divergence, 0.5, 1e-12);
  for (std::size_t i = 1; i < front.size(); ++i) EXPECT_LT(front[i].divergence, front[i - 1].divergence);
}

TEST(Sensitivity, FormatsGoWhereTheyHelp) {
  RecipeBudget budget;
  budget.choices = {QuantFormat::parse("int4:g128"), QuantFormat::parse("int8")};
  std::vector<PlannedLinear> linears(3);
  set_formats(kChoices, budget, 200.1, linears);
  EXPECT_EQ(linears[0].format, budget.choices[1]);
  EXPECT_EQ(linears[1].format, budget.choices[0]);
  EXPECT_EQ(linears[2].format, budget.choices[0]);
}

}  // namespace
}  // namespace triptych::compress
