// Shares of tenants: by weight, without savings, in bounded memory.
#include "engine/fair_shares.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/error.h"

namespace triptych {
namespace {

TEST(FairShares, TokensCountByWeight) {
  FairShares shares;
  shares.set_weight("big", 4);
  const auto big = shares.enter("big");
  const auto small = shares.enter("small");
  shares.charge(big, 100);
  shares.charge(small, 100);
  EXPECT_EQ(shares.served(big), 25);
  EXPECT_EQ(shares.served(small), 100);
  shares.set_weight("small", 2);
  shares.charge(small, -50);
  EXPECT_EQ(shares.served(small), 75);
  for (const double bad :
       {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(shares.set_weight("x", bad), Error) << bad;
}

TEST(FairShares, NobodySavesUpByBeingAway) {
  FairShares shares;
  const auto here = shares.enter("here");
  shares.charge(here, 1000);
  const auto fresh = shares.enter("fresh");
  EXPECT_EQ(shares.served(fresh), 1000) << "as if it had always been served as the least";
  shares.charge(fresh, 500);
  shares.leave(fresh);
  EXPECT_EQ(shares.served(shares.enter("fresh")), 1500) << "nor does going away pay a debt";
}

TEST(FairShares, WhenNobodyIsHereAllBeginAnew) {
  FairShares shares;
  const auto a = shares.enter("a");
  shares.charge(a, 10);
  shares.leave(a);
  EXPECT_EQ(shares.size(), 0U);
  EXPECT_EQ(shares.served(shares.enter("a")), 0);
}

TEST(FairShares, TenantsWithoutDebtAreForgotten) {
  FairShares shares;
  const auto here = shares.enter("here");
  for (int i = 0; i < 20'000; ++i) {
    const auto passing = shares.enter("tenant " + std::to_string(i));
    shares.charge(passing, 1);
    shares.leave(passing);
    shares.charge(here, 1);
  }
  EXPECT_LE(shares.size(), 1025U);
  EXPECT_EQ(shares.served(here), 20'000);
}

}  // namespace
}  // namespace triptych
