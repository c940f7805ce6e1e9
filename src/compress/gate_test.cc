#include "compress/gate.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace triptych::compress {
namespace {

QualityLoss loss_of(std::int64_t before, std::int64_t after, std::int64_t control, double divergence) {
  QualityLoss out;
  out.before = {.n = 1000, .n_right = before};
  out.after = {.n = 1000,
               .n_right = after,
               .n_control_right = control,
               .n_answer_tokens = 1,
               .sum_kl_divergence = divergence,
               .n_same_top = 1};
  return out;
}

bool passes(const char* gate, const QualityLoss& loss) {
  for (const GateResult& result : check_gate(parse_gate(gate), loss))
    if (!result.passed) return false;
  return true;
}

TEST(Gate, ComparesWithTheOriginalInPoints) {
  EXPECT_TRUE(passes("accuracy>=-0.3", loss_of(975, 972, 200, 0)));
  EXPECT_FALSE(passes("accuracy>=-0.3", loss_of(975, 971, 200, 0)));
  EXPECT_TRUE(passes("accuracy>=-0.3, kl<=0.005", loss_of(975, 976, 200, 0.005)));
  EXPECT_FALSE(passes("accuracy>=-0.3,kl<=0.005", loss_of(975, 976, 200, 0.0051)));
  EXPECT_TRUE(passes("same_top>=99", loss_of(975, 976, 200, 0)));
}

TEST(Gate, AModelThatIgnoresThePictureFails) {
  EXPECT_TRUE(passes("picture>=50", loss_of(975, 975, 200, 0)));
  EXPECT_FALSE(passes("picture>=50", loss_of(975, 975, 974, 0)));
}

TEST(Gate, WhatIsNoConditionIsRefused) {
  for (const char* text : {"", "accuracy", "accuracy>", "accuracy>=", "accuracy>=x", "speed>=1", "kl<0.1",
                           "kl<=0.1,", "kl<=nan", "kl<=inf", "kl<=1 2"})
    EXPECT_THROW(parse_gate(text), Error) << text;
}

}  // namespace
}  // namespace triptych::compress
