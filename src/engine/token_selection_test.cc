// Choices of tokens against what defines them.
#include "engine/token_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>

namespace triptych {
namespace {

using testing::ElementsAre;

Tensor matrix(std::int64_t n, std::int64_t width, const std::vector<float>& values) {
  Tensor out(DType::kF32, {n, width});
  std::memcpy(out.f32(), values.data(), values.size() * sizeof(float));
  return out;
}

Tensor random_matrix(std::int64_t n, std::int64_t width, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(n * width));
  for (float& x : values) x = normal(random);
  return matrix(n, width, values);
}

TEST(SelectHighest, KeepsOrderAndTheFirstOfEqualOnes) {
  const std::vector<double> scores = {1, 5, 2, 5, 2, 0};
  EXPECT_THAT(select_highest(scores, 0), ElementsAre());
  EXPECT_THAT(select_highest(scores, 2), ElementsAre(1, 3));
  EXPECT_THAT(select_highest(scores, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(select_highest(scores, 6), ElementsAre(0, 1, 2, 3, 4, 5));
}

// A plain background with three different things on it: each once before any background.
TEST(SelectDiverse, DifferentThingsComeBeforeTheBackground) {
  std::vector<float> values;
  for (int i = 0; i < 30; ++i) values.insert(values.end(), {1, 1, 1, 1});
  const auto set = [&](std::size_t row, std::size_t column, float x) { values[row * 4 + column] = x; };
  set(4, 0, 9);
  set(5, 0, 9);  // the same thing again
  set(11, 1, 8);
  set(20, 2, -7);
  const auto kept = select_diverse(matrix(30, 4, values), 3);
  EXPECT_THAT(kept, ElementsAre(4, 11, 20));
}

// By the definition: each next row makes the determinant of inner products and noise largest, by elimination
// in double.
TEST(SelectDiverse, IsTheGreedyChoiceOfTheLargestDeterminant) {
  const std::int64_t n = 30;
  const std::int64_t width = 12;
  const Tensor x = random_matrix(n, width, 7);
  std::vector<std::vector<double>> rows(n, std::vector<double>(width));
  for (std::int64_t d = 0; d < width; ++d) {
    double mean = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += static_cast<double>(x.f32()[i * width + d]) / n;
    for (std::int64_t i = 0; i < n; ++i)
      rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(d)] =
          static_cast<double>(x.f32()[i * width + d]) - mean;
  }
  const auto product = [&](std::size_t a, std::size_t b) {
    double out = 0;
    for (std::size_t d = 0; d < rows[a].size(); ++d) out += rows[a][d] * rows[b][d];
    return out;
  };
  double noise = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) noise += product(i, i) / static_cast<double>(n);
  const auto log_determinant = [&](const std::vector<std::size_t>& set) {
    std::vector<std::vector<double>> m(set.size(), std::vector<double>(set.size()));
    for (std::size_t i = 0; i < set.size(); ++i)
      for (std::size_t j = 0; j < set.size(); ++j) m[i][j] = product(set[i], set[j]) + (i == j ? noise : 0);
    double out = 0;
    for (std::size_t p = 0; p < set.size(); ++p) {
      out += std::log(m[p][p]);
      for (std::size_t i = p + 1; i < set.size(); ++i) {
        const double share = m[i][p] / m[p][p];
        for (std::size_t j = p; j < set.size(); ++j) m[i][j] -= share * m[p][j];
      }
    }
    return out;
  };
  std::vector<std::size_t> chosen;
  for (int step = 0; step < 18; ++step) {  // more than the rows span
    std::size_t best = 0;
    double most = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (std::find(chosen.begin(), chosen.end(), i) != chosen.end()) continue;
      std::vector<std::size_t> set = chosen;
      set.push_back(i);
      if (const double d = log_determinant(set); d > most) {
        most = d;
        best = i;
      }
    }
    chosen.push_back(best);
  }
  std::sort(chosen.begin(), chosen.end());
  EXPECT_EQ(select_diverse(x, 18), std::vector<std::int32_t>(chosen.begin(), chosen.end()));
}

// More than the rows span, rows that are all the same, one row, all rows: distinct rows, as many as asked
// for.
TEST(SelectDiverse, GivesAsManyAsAskedFor) {
  const auto expect_distinct = [](const Tensor& x, std::int64_t k) {
    const auto kept = select_diverse(x, k);
    EXPECT_EQ(static_cast<std::int64_t>(kept.size()), k);
    EXPECT_EQ(std::set<std::int32_t>(kept.begin(), kept.end()).size(), kept.size());
    EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  };
  expect_distinct(random_matrix(50, 3, 1), 40);
  expect_distinct(random_matrix(50, 3, 1), 50);
  expect_distinct(matrix(6, 2, std::vector<float>(12, 3.0F)), 4);
  expect_distinct(random_matrix(1, 8, 1), 1);
  expect_distinct(random_matrix(9, 8, 1), 0);
}

// The tower's rows may hold anything; a choice is made all the same.
TEST(SelectDiverse, ValuesThatAreNotFiniteDoNoHarm) {
  Tensor x = random_matrix(10, 4, 3);
  x.f32()[5] = std::numeric_limits<float>::quiet_NaN();
  x.f32()[9] = std::numeric_limits<float>::infinity();
  const auto kept = select_diverse(x, 6);
  EXPECT_EQ(std::set<std::int32_t>(kept.begin(), kept.end()).size(), 6U);
}

}  // namespace
}  // namespace triptych
