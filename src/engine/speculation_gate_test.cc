#include "engine/speculation_gate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace triptych {
namespace {

// A machine on which a step with k drafted rows takes 1 + slope k times as long, and a request whose drafts
// are right with probability `rate`.
struct Traffic {
  double slope = 0.05;
  double rate = 0.5;
  double share_of_tokens_with_a_match = 1;
  double draft_share = 0;
  int max_tokens = 8;

  // Plain tokens that the answer took; n_tokens when nothing was drafted.
  double time_of(SharedSpeculation& shared, int n_tokens, std::uint64_t seed) const {
    SpeculationGate gate;
    Rng rng(seed);
    double time = 0;
    for (int made = 0; made < n_tokens;) {
      int k = 0;
      if (rng.uniform() < share_of_tokens_with_a_match)
        k = gate.choose(shared, {.n_sequences = 1, .n_drafted = 0, .draft_share = draft_share}, 2,
                        std::min(max_tokens, n_tokens - made - 1));
      const double ratio = 1 + slope * k + draft_share * k;
      shared.costs.observe(1, k, 10 * (1 + slope * k));
      time += ratio;
      int accepted = 0;
      while (accepted < k && rng.uniform() < rate) ++accepted;
      if (k > 0) gate.observe(shared, 2, k, accepted, shared.costs.ratio(1, k) - 1 + draft_share * k);
      for (int i = 0; i <= accepted; ++i) gate.earn(shared);
      made += accepted + 1;
    }
    return time;
  }
  double speedup(int n_requests, int n_tokens) const {
    SharedSpeculation shared;
    double time = 0;
    for (int i = 0; i < n_requests; ++i) time += time_of(shared, n_tokens, static_cast<std::uint64_t>(i));
    return n_requests * n_tokens / time;
  }
};

TEST(DraftCosts, GuessesMeasuresAndReadsBetween) {
  DraftCosts costs;
  EXPECT_FALSE(costs.plain_ms(1).has_value());
  EXPECT_TRUE(costs.is_stale(1));
  costs.observe(1, 0, 50);  // the first pays for what later ones find ready
  EXPECT_FALSE(costs.plain_ms(1).has_value());
  costs.observe(1, 0, 10);
  EXPECT_DOUBLE_EQ(*costs.plain_ms(1), 10);
  EXPECT_DOUBLE_EQ(costs.ratio(1, 4), 1 + 4 * DraftCosts::kFirstGuess);
  costs.observe(1, 4, 14);
  EXPECT_DOUBLE_EQ(costs.ratio(1, 4), 1.4);
  EXPECT_DOUBLE_EQ(costs.ratio(1, 2), 1.2);
  EXPECT_DOUBLE_EQ(costs.ratio(1, 5), 1.4 + DraftCosts::kFirstGuess);
  EXPECT_DOUBLE_EQ(costs.ratio(1, 0), 1);
  EXPECT_FALSE(costs.plain_ms(2).has_value());
  // A hiccup of the machine moves it little.
  costs.observe(1, 4, 1000);
  EXPECT_LT(costs.ratio(1, 4), 1.6);
}

TEST(DraftCosts, OneMeasurementAloneIsForgotten) {
  DraftCosts costs;
  for (int i = 0; i < 3; ++i) costs.observe(1, 0, 10);
  costs.observe(1, 2, 500);
  EXPECT_GT(costs.ratio(1, 2), 40);
  for (int i = 0; i < 40; ++i) costs.observe(1, 0, 10);
  EXPECT_DOUBLE_EQ(costs.ratio(1, 2), 1 + 2 * DraftCosts::kFirstGuess);
}

TEST(DraftCosts, AsksForAPlainStepNowAndThen) {
  DraftCosts costs;
  for (int i = 0; i < 3; ++i) costs.observe(1, 0, 10);
  int n_until_stale = 0;
  while (!costs.is_stale(1) && n_until_stale < 1000) {
    costs.observe(1, 3, 12);
    ++n_until_stale;
  }
  EXPECT_EQ(n_until_stale, 64);
  costs.observe(1, 0, 10);
  EXPECT_FALSE(costs.is_stale(1));
}

TEST(SpeculationGate, NothingBeforePlainStepsWereMeasured) {
  SharedSpeculation shared;
  const SpeculationGate gate;
  EXPECT_EQ(gate.choose(shared, {}, 2, 8), 0);
  shared.costs.observe(1, 0, 10);
  shared.costs.observe(1, 0, 10);
  EXPECT_GT(gate.choose(shared, {}, 2, 8), 0);
  EXPECT_EQ(gate.choose(shared, {}, 2, 0), 0);
}

TEST(SpeculationGate, DraftsThatAreNeverRightCostLittle) {
  for (const double slope : {0.02, 0.05, 0.2, 0.6})
    for (const double share : {1.0, 0.3}) {
      const Traffic never{.slope = slope, .rate = 0, .share_of_tokens_with_a_match = share};
      EXPECT_GE(never.speedup(20, 64), 0.97) << slope << " " << share;
      EXPECT_GE(never.speedup(4, 512), 0.97) << slope << " " << share;
      EXPECT_GE(never.speedup(50, 16), 0.97) << slope << " " << share;
    }
}

TEST(SpeculationGate, DraftsThatCostMoreThanTheyGiveAreLeftOut) {
  EXPECT_GE((Traffic{.slope = 0.9, .rate = 0.4}.speedup(4, 256)), 0.97);
  EXPECT_GE((Traffic{.slope = 0.05, .rate = 0.3, .draft_share = 0.5}.speedup(4, 256)), 0.97);
}

TEST(SpeculationGate, DraftsThatAreRightAreMade) {
  EXPECT_GE((Traffic{.slope = 0.05, .rate = 0.95}.speedup(4, 128)), 2.5);
  EXPECT_GE((Traffic{.slope = 0.05, .rate = 0.8}.speedup(4, 128)), 1.8);
  EXPECT_GE((Traffic{.slope = 0.2, .rate = 0.95}.speedup(4, 128)), 1.5);
  EXPECT_GE((Traffic{.slope = 0.05, .rate = 0.9, .draft_share = 0.35}.speedup(4, 256)), 1.3);
}

TEST(SpeculationGate, AKnownAcceptanceLetsACostlyDraftBegin) {
  const Traffic traffic{.slope = 0.05, .rate = 0.92, .draft_share = 0.45};
  const auto speedup = [&](double first_rate) {
    SharedSpeculation shared;
    shared.first_rate = first_rate;
    double time = 0;
    for (std::uint64_t i = 0; i < 4; ++i) time += traffic.time_of(shared, 256, i);
    return 4 * 256 / time;
  };
  EXPECT_GT(speedup(0.92), 1.15);
  EXPECT_GE(speedup(0.5), 0.97);
}

TEST(SpeculationGate, ComesBackWhenTheAnswerTurnsToRepeating) {
  SharedSpeculation shared;
  const Traffic wrong{.rate = 0};
  wrong.time_of(shared, 600, 1);
  // A new request in an engine whose last ones had nothing to repeat.
  const double time = Traffic{.rate = 0.97}.time_of(shared, 256, 2);
  EXPECT_GE(256 / time, 1.5);
}

TEST(SpeculationGate, InABatchATokenMustPayForAllThatWait) {
  SharedSpeculation shared;
  for (int i = 0; i < 4; ++i) shared.costs.observe(8, 0, 10);
  shared.costs.observe(8, 1, 14);  // a row more: 40 % of the step of eight sequences
  shared.costs.observe(8, 1, 14);
  const SpeculationGate gate;
  EXPECT_EQ(gate.choose(shared, {.n_sequences = 8}, 2, 1), 0);  // 3.2 tokens' time for half a token
}

}  // namespace
}  // namespace triptych
