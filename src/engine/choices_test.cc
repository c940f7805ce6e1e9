// Several answers to a request: they are what each would be alone, and share the pages of the prompt.
#include "engine/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/testing/faulty_model.h"

namespace triptych {
namespace {

using testing::ElementsAre;

GenerationResult result_of(std::string text, double logprob, bool failed = false) {
  GenerationResult out;
  out.text = std::move(text);
  out.cumulative_logprob = logprob;
  if (failed) out.error = RequestError{};
  return out;
}

std::vector<std::string> texts_of(const GenerationResult& result) {
  std::vector<std::string> out;
  for (const GenerationResult& choice : result.choices) out.push_back(choice.text);
  return out;
}

TEST(CombineChoices, KeepsTheOrderOrTheBest) {
  const std::vector<GenerationResult> all = {result_of("a", -3), result_of("b", -1), result_of("c", -2),
                                             result_of("d", 0, true)};
  EXPECT_THAT(texts_of(combine_choices(all, 4)), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(combine_choices(all, 4).text, "a");
  EXPECT_THAT(texts_of(combine_choices(all, 2)), ElementsAre("b", "c"));
  EXPECT_THAT(texts_of(combine_choices(all, 3)), ElementsAre("b", "c", "a")) << "what failed comes last";
  const GenerationResult best = combine_choices(all, 1);
  EXPECT_EQ(best.text, "b");
  EXPECT_TRUE(best.choices.empty());
}

const EngineOptions kOptions = {.max_context_tokens = 512,
                                .kv_cache_tokens = 4096,
                                .max_batch_tokens = 64,
                                .kv_cache_dtype = KvDType::kF32,
                                .replay_steps = false};

// 150 tokens: two whole pages and 22 rows.
constexpr int kPrompt = 150;

class Choices : public testing::Test {
 protected:
  LoadedModel& model() { return *model_; }
  PreparedRequest prompt(int n_tokens = kPrompt) {
    PreparedRequest out;
    for (int i = 0; i < n_tokens; ++i) out.token_ids.push_back(1 + (i * i / 3) % 7);
    out.layout = model().model().expand_prompt(out.token_ids, {});
    return out;
  }
  static SamplingParams sampled(int n, int best_of = 0) {
    SamplingParams out;
    out.max_tokens = 70;  // over the end of a page
    out.temperature = 1.0F;
    out.seed = 7;
    out.ignore_eos = true;
    out.n_logprobs = 0;
    out.n = n;
    out.best_of = best_of;
    return out;
  }
  static std::vector<std::vector<std::int32_t>> ids_of(const GenerationResult& result) {
    std::vector<std::vector<std::int32_t>> out;
    for (const GenerationResult& choice : result.choices) out.push_back(choice.token_ids);
    return out;
  }
  // With one place, siblings wait and compute prompt and answer by themselves.
  GenerationResult apart(const SamplingParams& params) {
    EngineOptions options = kOptions;
    options.max_sequences = 1;
    Engine engine(model(), options);
    return engine.generate(prompt(), params);
  }

  test::FaultyTinyModel model_{"llava"};
};

TEST_F(Choices, AreWhatEachIsAlone) {
  Engine engine(model(), kOptions);
  const GenerationResult together = engine.generate(prompt(), sampled(4));
  ASSERT_EQ(together.choices.size(), 4U);
  EXPECT_EQ(ids_of(together), ids_of(apart(sampled(4))));
  EXPECT_EQ(together.token_ids, together.choices[0].token_ids);
  Engine other(model(), kOptions);
  const GenerationResult one = other.generate(prompt(), sampled(1));
  EXPECT_TRUE(one.choices.empty());
  EXPECT_EQ(together.choices[0].token_ids, one.token_ids) << "the first is the answer without choices";
  for (std::size_t i = 1; i < 4; ++i) EXPECT_NE(ids_of(together)[i], ids_of(together)[0]) << i;
  EXPECT_EQ(ids_of(engine.generate(prompt(), sampled(4))), ids_of(together)) << "a seed gives the same";
  SamplingParams seeded = sampled(4);
  seeded.seed = 8;
  EXPECT_NE(ids_of(engine.generate(prompt(), seeded)), ids_of(together));
  const KvCacheStats stats = engine.kv_cache_stats();
  EXPECT_EQ(stats.n_free_blocks, stats.n_blocks) << "no page is lost";
}

// A sibling that computes the prompt again has what was encoded for it.
TEST_F(Choices, ShareThePicture) {
  const auto about_a_picture = [&] {
    PreparedRequest out = prompt(70);
    Image image{28, 28, {}};
    image.rgb.assign(std::size_t{3} * 28 * 28, 90);
    MediaItem item;
    item.plan = model().model().plan_media({.width_px = 28, .height_px = 28}, {});
    item.pixels = model().model().preprocess({&image, 1}, item.plan, nullptr);
    out.token_ids.push_back(model().info().image_token_id);
    out.layout = model().model().expand_prompt(out.token_ids, {&item.plan, 1});
    out.media.push_back(std::move(item));
    return out;
  };
  Engine together(model(), kOptions);
  const auto ids = ids_of(together.generate(about_a_picture(), sampled(3)));
  EXPECT_EQ(ids.size(), 3U);
  EXPECT_EQ(together.n_media_encoded(), 1);
  EngineOptions options = kOptions;
  options.max_sequences = 1;
  Engine apart_engine(model(), options);
  EXPECT_EQ(ids_of(apart_engine.generate(about_a_picture(), sampled(3))), ids);
  EXPECT_EQ(apart_engine.n_media_encoded(), 1);
}

TEST_F(Choices, GreedyOnesAreEqual) {
  Engine engine(model(), kOptions);
  SamplingParams greedy = sampled(3);
  greedy.temperature = 0;
  const GenerationResult result = engine.generate(prompt(), greedy);
  greedy.n = 1;
  const std::vector<std::int32_t> alone = engine.generate(prompt(), greedy).token_ids;
  EXPECT_THAT(ids_of(result), ElementsAre(alone, alone, alone));
}

TEST_F(Choices, ShareThePagesOfThePrompt) {
  Engine engine(model(), kOptions);
  const auto id = engine.submit(prompt(), sampled(4));
  std::int64_t n_rows = 0;
  model_.faults->before_forward = [&](const Batch& batch) {
    n_rows += static_cast<std::int64_t>(batch.token_ids.size());
  };
  while (engine.kv_cache_stats().n_shared_blocks == 0) engine.step();
  EXPECT_EQ(n_rows, kPrompt) << "it is computed once";
  KvCacheStats stats = engine.kv_cache_stats();
  EXPECT_EQ(stats.n_used_blocks, 3);
  EXPECT_EQ(stats.n_shared_blocks, 3) << "also the last, until they write";
  EXPECT_EQ(stats.n_used_tokens, kPrompt);
  engine.step();
  stats = engine.kv_cache_stats();
  EXPECT_EQ(stats.n_shared_blocks, 2);
  EXPECT_EQ(stats.n_used_blocks, 2 + 4) << "copied on the first write";
  EXPECT_EQ(stats.n_used_tokens, 2 * kBlockTokens + 4 * (kPrompt + 1 - 2 * kBlockTokens));
  while (engine.has_work()) engine.step();
  EXPECT_EQ(engine.take_result(id).value().choices.size(), 4U);
}

// A prompt that ends with its page leaves nothing to copy.
TEST_F(Choices, AWholeLastPageIsNotCopied) {
  Engine engine(model(), kOptions);
  engine.submit(prompt(128), sampled(3));
  while (engine.kv_cache_stats().n_shared_blocks == 0) engine.step();
  engine.step();
  EXPECT_EQ(engine.kv_cache_stats().n_used_blocks, 2 + 3);
  EXPECT_EQ(engine.kv_cache_stats().n_shared_blocks, 2);
}

TEST_F(Choices, TheBestAreThoseWithTheHighestLogProbability) {
  Engine engine(model(), kOptions);
  const GenerationResult all = engine.generate(prompt(), sampled(6));
  std::vector<std::pair<double, std::vector<std::int32_t>>> ranked;
  for (const GenerationResult& choice : all.choices) {
    double sum = 0;
    for (const SampledToken& token : choice.tokens) sum += static_cast<double>(token.logprob);
    EXPECT_NEAR(choice.cumulative_logprob.value(), sum, 1e-9);
    ranked.emplace_back(-sum, choice.token_ids);
  }
  std::sort(ranked.begin(), ranked.end());
  SamplingParams params = sampled(2, 6);
  params.n_logprobs = -1;
  const GenerationResult best = engine.generate(prompt(), params);
  EXPECT_THAT(ids_of(best), ElementsAre(ranked[0].second, ranked[1].second));
  EXPECT_NEAR(best.cumulative_logprob.value(), -ranked[0].first, 1e-3);
  EXPECT_TRUE(best.tokens.empty()) << "they were not asked for";
  const GenerationResult one = engine.generate(prompt(), sampled(1, 6));
  EXPECT_EQ(one.token_ids, ranked[0].second);
  EXPECT_TRUE(one.choices.empty());
}

// Seven pages for what needs fourteen: the youngest give way, and compute the prompt again.
TEST_F(Choices, GiveWayWhenPagesRunOut) {
  EngineOptions options = kOptions;
  options.kv_cache_tokens = 7 * kBlockTokens;
  options.max_context_tokens = 4 * kBlockTokens;
  Engine engine(model(), options);
  EXPECT_EQ(ids_of(engine.generate(prompt(), sampled(6))), ids_of(apart(sampled(6))));
  EXPECT_GT(engine.n_preemptions(), 0);
  EXPECT_EQ(engine.kv_cache_stats().n_free_blocks, 7);
}

TEST_F(Choices, EachFailsAlone) {
  Engine engine(model(), kOptions);
  const auto throws_for = [](int choice) {
    return [choice](const TokenEvent& event) -> bool {
      if (event.choice == choice) throw std::runtime_error("mine");
      return true;
    };
  };
  const auto id = engine.submit(prompt(), sampled(3), throws_for(1));
  while (engine.has_work()) engine.step();
  const GenerationResult result = engine.take_result(id).value();
  ASSERT_EQ(result.choices.size(), 3U);
  EXPECT_FALSE(result.error.has_value());
  EXPECT_EQ(result.choices[1].finish_reason, FinishReason::kError);
  EXPECT_EQ(result.choices[1].error->message, "mine");
  const std::vector<std::vector<std::int32_t>> all = ids_of(apart(sampled(3)));
  EXPECT_EQ(result.choices[0].token_ids, all[0]);
  EXPECT_EQ(result.choices[2].token_ids, all[2]);
  EXPECT_THROW(engine.generate(prompt(), sampled(3), throws_for(2)), std::runtime_error);
  EXPECT_EQ(engine.kv_cache_stats().n_free_blocks, engine.kv_cache_stats().n_blocks);
}

TEST_F(Choices, APromptThatFailsEndsAll) {
  Engine engine(model(), kOptions);
  model_.faults->before_forward = [](const Batch&) { fail(ErrorCode::kInternal, "fault"); };
  const auto id = engine.submit(prompt(), sampled(3));
  while (engine.has_work()) engine.step();
  model_.faults->before_forward = nullptr;
  EXPECT_EQ(engine.take_result(id).value().finish_reason, FinishReason::kError);
  EXPECT_FALSE(engine.take_result(id).has_value());
}

TEST_F(Choices, ACancelEndsAll) {
  for (const int after_steps : {0, 5}) {
    Engine engine(model(), kOptions);
    const auto id = engine.submit(prompt(), sampled(3));
    for (int i = 0; i < after_steps; ++i) engine.step();
    engine.cancel(id);
    while (engine.has_work()) engine.step();
    const GenerationResult result = engine.take_result(id).value();
    EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
    for (const GenerationResult& choice : result.choices)
      EXPECT_EQ(choice.finish_reason, FinishReason::kCancelled);
    EXPECT_EQ(engine.kv_cache_stats().n_free_blocks, engine.kv_cache_stats().n_blocks);
  }
  Engine engine(model(), kOptions);
  const GenerationResult result =
      engine.generate(prompt(), sampled(3), [](const TokenEvent& event) { return event.choice != 1; });
  EXPECT_EQ(result.choices.at(1).token_ids.size(), 1U) << "who wants no more of one wants none of the others";
  EXPECT_EQ(result.choices.at(0).finish_reason, FinishReason::kCancelled);
}

TEST_F(Choices, EventsSayWhoseTheyAre) {
  Engine engine(model(), kOptions);
  const auto id = engine.submit(prompt(), sampled(3));
  std::vector<std::vector<std::int32_t>> seen(3);
  int n_ends = 0;
  while (engine.has_work()) {
    EXPECT_FALSE(engine.take_result(id).has_value()) << "some go on";
    for (const StepOutput& out : engine.step()) {
      EXPECT_EQ(out.id, id);
      for (const TokenEvent& event : out.events) {
        EXPECT_EQ(event.choice, out.choice);
        seen.at(static_cast<std::size_t>(out.choice)).push_back(event.token.id);
      }
      if (out.finish_reason) ++n_ends;
    }
  }
  EXPECT_EQ(n_ends, 3);
  EXPECT_EQ(ids_of(engine.take_result(id).value()), seen);
}

TEST_F(Choices, NumbersOutOfRangeAreRefused) {
  Engine engine(model(), kOptions);
  const auto message_of = [&](int n, int best_of) {
    try {
      engine.submit(prompt(), sampled(n, best_of));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message_of(0, 0), testing::HasSubstr("n: expected"));
  EXPECT_THAT(message_of(129, 0), testing::HasSubstr("n: expected"));
  EXPECT_THAT(message_of(3, 2), testing::HasSubstr("best_of: expected"));
  EXPECT_THAT(message_of(3, 129), testing::HasSubstr("best_of: expected"));
  EXPECT_FALSE(engine.has_work());
}

}  // namespace
}  // namespace triptych
