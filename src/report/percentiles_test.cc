// Quantiles against NumPy's (numpy.percentile, method "linear").
#include "report/percentiles.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

TEST(Percentiles, AreLinearBetweenNeighbours) {
  const Percentiles one = percentiles_of({4, 1, 3, 2, 10});
  EXPECT_EQ(one.n, 5U);
  EXPECT_DOUBLE_EQ(one.mean, 4);
  EXPECT_DOUBLE_EQ(one.p50, 3);
  EXPECT_DOUBLE_EQ(one.p90, 7.6);
  EXPECT_DOUBLE_EQ(one.p99, 9.76);
  EXPECT_DOUBLE_EQ(one.highest, 10);
}

TEST(Percentiles, OfNoneAndOfOne) {
  EXPECT_EQ(percentiles_of({}).n, 0U);
  EXPECT_EQ(percentiles_of({}).p99, 0);
  EXPECT_EQ(percentiles_of({7}).p50, 7);
  EXPECT_EQ(percentiles_of({7}).p99, 7);
  EXPECT_EQ(quantile({1, 2}, 2.0), 2) << "a share beyond 1 is 1";
}

}  // namespace
}  // namespace triptych
