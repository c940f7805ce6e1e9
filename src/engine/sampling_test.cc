#include "engine/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"

namespace triptych {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// How often each of `n` draws chose each id.
std::map<std::int32_t, int> draws(const SamplingParams& params, const std::vector<float>& logits,
                                  int n = 4000) {
  std::map<std::int32_t, int> out;
  Sampler sampler(params, 7, static_cast<std::int64_t>(logits.size()), {});
  for (int i = 0; i < n; ++i) ++out[sampler.sample(logits).id];
  return out;
}

// Logits of given probabilities.
std::vector<float> logits_of(std::initializer_list<double> probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

TEST(Sampler, GreedyTakesTheLowestIdOnATie) {
  Sampler sampler({}, 1, 4, {});
  EXPECT_EQ(sampler.sample(std::vector<float>{0.0F, 2.0F, 2.0F, 1.0F}).id, 1);
}

TEST(Sampler, PaddingRowsAndPlaceholdersAreNeverChosen) {
  Sampler greedy({}, 1, 3, {1});
  EXPECT_EQ(greedy.sample(std::vector<float>{0.0F, 9.0F, 1.0F, 99.0F}).id, 2);
  SamplingParams hot;
  hot.temperature = 50.0F;
  Sampler sampler(hot, 1, 3, {1});
  for (int i = 0; i < 500; ++i) {
    const std::int32_t id = sampler.sample(std::vector<float>{0.0F, 9.0F, 1.0F, 99.0F}).id;
    ASSERT_TRUE(id == 0 || id == 2);
  }
}

TEST(Sampler, LogitsThatAreNotFiniteAreErrors) {
  Sampler sampler({}, 1, 3, {});
  EXPECT_THROW(sampler.sample(std::vector<float>{1.0F, std::nanf(""), 2.0F}), Error);
  EXPECT_THROW(sampler.sample(std::vector<float>{1.0F, kInf, 2.0F}), Error);
  EXPECT_THROW(sampler.sample(std::vector<float>{-kInf, -kInf, -kInf}), Error);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInf, -5.0F, -kInf, std::nanf("")}).id, 1)
      << "never, and padding";
}

TEST(Sampler, TinyTemperaturesAreGreedy) {
  SamplingParams params;
  for (const float temperature : {2e-38F, 1e-45F, 1e-20F}) {
    params.temperature = temperature;
    EXPECT_EQ(draws(params, {1.0F, 3.0F, 2.0F}, 50), (std::map<std::int32_t, int>{{1, 50}})) << temperature;
  }
}

TEST(Sampler, PaddingRowsAreInNoList) {
  SamplingParams params;
  params.n_logprobs = 4;
  Sampler sampler(params, 1, 2, {});
  const SampledToken token = sampler.sample(std::vector<float>{0.0F, 0.0F, 50.0F, 60.0F});
  ASSERT_EQ(token.top.size(), 2U);
  EXPECT_EQ(token.top[0].id, 0);
  EXPECT_NEAR(token.logprob, std::log(0.5), 1e-6);
}

TEST(Sampler, SameSeedSameTokensOtherSeedOtherTokens) {
  SamplingParams params;
  params.temperature = 1.0F;
  const std::vector<float> logits(50, 0.0F);
  const auto run = [&](std::uint64_t seed) {
    Sampler sampler(params, seed, 50, {});
    std::vector<std::int32_t> out;
    for (int i = 0; i < 20; ++i) out.push_back(sampler.sample(logits).id);
    return out;
  };
  EXPECT_EQ(run(42), run(42));
  EXPECT_NE(run(42), run(43));
}

TEST(Sampler, DrawsFollowTheDistribution) {
  SamplingParams params;
  params.temperature = 1.0F;
  const auto counts = draws(params, logits_of({0.5, 0.3, 0.2}), 20000);
  // Five standard deviations.
  EXPECT_NEAR(counts.at(0) / 20000.0, 0.5, 0.018);
  EXPECT_NEAR(counts.at(1) / 20000.0, 0.3, 0.017);
  EXPECT_NEAR(counts.at(2) / 20000.0, 0.2, 0.015);
}

TEST(Sampler, TemperatureSharpens) {
  SamplingParams params;
  params.temperature = 0.5F;  // probabilities squared: 25/38, 9/38, 4/38
  const auto counts = draws(params, logits_of({0.5, 0.3, 0.2}), 20000);
  EXPECT_NEAR(counts.at(0) / 20000.0, 25.0 / 38, 0.018);
}

TEST(Sampler, TopKTopPMinPKeepWhatTheyShould) {
  SamplingParams params;
  params.temperature = 1.0F;
  const std::vector<float> logits = logits_of({0.4, 0.3, 0.2, 0.1});
  params.top_k = 2;
  EXPECT_THAT(draws(params, logits), testing::UnorderedElementsAre(testing::Key(0), testing::Key(1)));
  params.top_k = 0;
  params.top_p = 0.6F;  // 0.4 + 0.3 reaches it
  EXPECT_THAT(draws(params, logits), testing::UnorderedElementsAre(testing::Key(0), testing::Key(1)));
  params.top_p = 1.0F;
  params.min_p = 0.6F;  // 0.24 and more
  EXPECT_THAT(draws(params, logits), testing::UnorderedElementsAre(testing::Key(0), testing::Key(1)));
}

// Entropy of {0.5, 0.25, 0.125, 0.125} is 1.75 bits; -log2 p is 1, 2, 3, 3: the second is the most typical,
// the first next.
TEST(Sampler, TypicalKeepsTheMostTypical) {
  SamplingParams params;
  params.temperature = 1.0F;
  params.typical_p = 0.2F;
  EXPECT_THAT(draws(params, logits_of({0.5, 0.25, 0.125, 0.125})), testing::ElementsAre(testing::Key(1)));
  params.typical_p = 0.3F;
  EXPECT_THAT(draws(params, logits_of({0.5, 0.25, 0.125, 0.125})),
              testing::ElementsAre(testing::Key(0), testing::Key(1)));
}

TEST(Sampler, RepetitionPenaltyReachesThePromptTheOthersOnlyTheAnswer) {
  SamplingParams params;
  params.repetition_penalty = 2.0F;
  Sampler repetition(params, 1, 3, {});
  const std::int32_t prompt[] = {0};
  repetition.observe_prompt(prompt);
  EXPECT_EQ(repetition.sample(std::vector<float>{3.0F, 2.0F, -1.0F}).id, 1);  // 1.5, 2, -1
  EXPECT_EQ(repetition.sample(std::vector<float>{3.0F, 2.0F, -1.0F}).id, 0);  // 1.5, 1, -1
  Sampler negative(params, 1, 2, {});
  negative.observe_prompt(prompt);
  EXPECT_EQ(negative.sample(std::vector<float>{-1.0F, -1.5F}).id, 1);  // -2, -1.5

  SamplingParams counting;
  counting.frequency_penalty = 0.6F;
  Sampler frequency(counting, 1, 2, {});
  frequency.observe_prompt(prompt);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(frequency.sample(std::vector<float>{1.0F, 0.0F}).id);
  EXPECT_THAT(ids, testing::ElementsAre(0, 0, 1, 0));  // 1 - 0.6 > 0, then 1 - 1.2 < 0, then -0.2 > -0.6

  SamplingParams once;
  once.presence_penalty = 0.7F;
  Sampler presence(once, 1, 2, {});
  EXPECT_EQ(presence.sample(std::vector<float>{1.0F, 0.5F}).id, 0);
  EXPECT_EQ(presence.sample(std::vector<float>{1.0F, 0.5F}).id, 1);
  EXPECT_EQ(presence.sample(std::vector<float>{1.0F, 0.5F}).id, 0);
}

TEST(Sampler, LogitBiasAndLogprobs) {
  SamplingParams params;
  params.logit_bias = {{1, 100.0F}};
  params.n_logprobs = 2;
  Sampler sampler(params, 1, 3, {});
  const SampledToken token = sampler.sample(logits_of({0.5, 0.2, 0.3}));
  EXPECT_EQ(token.id, 1);
  EXPECT_NEAR(token.logprob, std::log(0.2), 1e-5);  // of the model, not of the biased choice
  ASSERT_EQ(token.top.size(), 2U);
  EXPECT_EQ(token.top[0].id, 0);
  EXPECT_EQ(token.top[1].id, 2);
  EXPECT_NEAR(token.top[1].logprob, std::log(0.3), 1e-5);
}

TEST(SamplingParams, OutOfRangeNamesFieldAndRange) {
  const auto message = [](auto&& change) {
    SamplingParams params;
    change(params);
    try {
      params.validate(10);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message([](SamplingParams& p) { p.stop = {"ok", "\xff"}; }), "stop: a string is not valid UTF-8");
  EXPECT_EQ(message([](SamplingParams& p) { p.top_p = 0; }), "top_p: expected a number in (0, 1], got 0");
  EXPECT_EQ(message([](SamplingParams& p) { p.temperature = -1; }),
            "temperature: expected a number in [0, 100], got -1");
  EXPECT_THAT(message([](SamplingParams& p) { p.temperature = std::nanf(""); }),
              testing::StartsWith("temperature"));
  EXPECT_THAT(message([](SamplingParams& p) { p.top_k = -2; }), testing::StartsWith("top_k"));
  EXPECT_THAT(message([](SamplingParams& p) { p.min_p = 2; }), testing::StartsWith("min_p"));
  EXPECT_THAT(message([](SamplingParams& p) { p.frequency_penalty = 1e9F; }),
              testing::StartsWith("frequency_penalty"));
  EXPECT_EQ(message([](SamplingParams& p) {
              p.logit_bias = {{10, 0.0F}};
            }),
            "logit_bias: token id 10 is outside [0, 10)");
  EXPECT_THAT(message([](SamplingParams& p) { p.stop = {""}; }), testing::StartsWith("stop"));
  EXPECT_THAT(message([](SamplingParams& p) { p.n_logprobs = 1000; }), testing::StartsWith("logprobs"));
  EXPECT_EQ(message([](SamplingParams& p) { p.top_k = 1000000000; }), "");
  EXPECT_EQ(message([](SamplingParams&) {}), "");
}

}  // namespace
}  // namespace triptych
