#include "compress/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "base/error.h"

namespace triptych::compress {
namespace {

double bytes_of(const std::vector<std::vector<Choice>>& linears, const std::vector<std::size_t>& chosen) {
  double out = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) out += linears[i][chosen[i]].bytes;
  return out;
}
double loss_of(const std::vector<std::vector<Choice>>& linears, const std::vector<std::size_t>& chosen) {
  double out = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) out += linears[i][chosen[i]].loss;
  return out;
}

TEST(Budget, SpendsBytesWhereTheyHelpMost) {
  const std::vector<std::vector<Choice>> linears = {
      {{4, 1.0}, {8, 0.9}}, {{4, 5.0}, {8, 0.1}}, {{4, 0.2}, {8, 0.0}}};
  EXPECT_EQ(choose_within(linears, 12), (std::vector<std::size_t>{0, 0, 0}));
  EXPECT_EQ(choose_within(linears, 16.1), (std::vector<std::size_t>{0, 1, 0}));
  EXPECT_EQ(choose_within(linears, 1000), (std::vector<std::size_t>{1, 1, 1}));
  EXPECT_THROW(choose_within(linears, 11.9), Error);
}

TEST(Budget, IsAsGoodAsTryingEverything) {
  std::mt19937 rng(1);
  std::uniform_int_distribution<int> number(1, 40);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<Choice>> linears(6);
    for (auto& choices : linears)
      for (int c = 0; c < 3; ++c)
        choices.push_back({static_cast<double>(number(rng)), static_cast<double>(number(rng))});
    double smallest = 0;
    for (const auto& choices : linears)
      smallest += std::min({choices[0].bytes, choices[1].bytes, choices[2].bytes});
    const double budget = smallest + 30;
    const auto chosen = choose_within(linears, budget);
    EXPECT_LE(bytes_of(linears, chosen), budget);
    double best = std::numeric_limits<double>::infinity();
    std::vector<std::size_t> tried(6);
    for (int code = 0; code < 729; ++code) {
      for (int i = 0, rest = code; i < 6; ++i, rest /= 3)
        tried[static_cast<std::size_t>(i)] = static_cast<std::size_t>(rest % 3);
      // A little less, for what rounding up to steps costs.
      if (bytes_of(linears, tried) <= budget - 6 * 30.0 / 4096)
        best = std::min(best, loss_of(linears, tried));
    }
    EXPECT_LE(loss_of(linears, chosen), best);
  }
}

}  // namespace
}  // namespace triptych::compress
