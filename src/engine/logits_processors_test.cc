#include "engine/logits_processors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "engine/sampling.h"

namespace triptych {
namespace {

using ::testing::ElementsAre;

constexpr float kNever = -std::numeric_limits<float>::infinity();

LogitsProcessorParams parse(const std::string& text) {
  const Json json = parse_json(text, "generation_config.json");
  std::vector<std::string_view> unsupported;
  return LogitsProcessorParams::parse(JsonView(json, "generation_config.json"), unsupported);
}

// Logits after the processors of `text`; the answer follows the prompt, id 0 ends it.
std::vector<float> processed(const std::string& text, std::vector<float> logits,
                             const std::vector<std::int32_t>& prompt,
                             const std::vector<std::int32_t>& answer = {}, float repetition_penalty = 1.0F) {
  LogitsProcessors processors(parse(text), repetition_penalty, {0});
  processors.observe_prompt(prompt);
  for (const std::int32_t id : answer) processors.observe_token(id);
  processors.run(logits);
  return logits;
}

TEST(LogitsProcessors, NothingIsNeutral) {
  EXPECT_FALSE(LogitsProcessors(parse("{}"), 1.0F, {0}).is_active());
  EXPECT_TRUE(LogitsProcessors(parse("{}"), 1.5F, {0}).is_active());
  EXPECT_TRUE(LogitsProcessors(parse(R"({"suppress_tokens": [1]})"), 1.0F, {0}).is_active());
}

TEST(LogitsProcessors, SuppressedTokens) {
  EXPECT_THAT(processed(R"({"suppress_tokens": [1], "begin_suppress_tokens": [2]})", {1, 2, 3, 4}, {3}),
              ElementsAre(1, kNever, kNever, 4));
  EXPECT_THAT(processed(R"({"suppress_tokens": [1], "begin_suppress_tokens": [2]})", {1, 2, 3, 4}, {3}, {3}),
              ElementsAre(1, kNever, 3, 4));
}

TEST(LogitsProcessors, SequencesThatGoOn) {
  const std::string bias = R"({"sequence_bias": [[[2, 3], 1.5], [[1], -2.0]]})";
  EXPECT_THAT(processed(bias, {0, 0, 0, 0}, {1, 2}), ElementsAre(0, -2, 0, 1.5));
  EXPECT_THAT(processed(bias, {0, 0, 0, 0}, {2, 1}), ElementsAre(0, -2, 0, 0));
  EXPECT_THAT(processed(R"({"bad_words_ids": [[2, 3], [1], [0]]})", {0, 0, 0, 0}, {1}, {2}),
              ElementsAre(0, kNever, 0, kNever))
      << "a word that is only the end is none";
}

TEST(LogitsProcessors, EndIsHeldBack) {
  for (const char* text : {R"({"min_new_tokens": 2})", R"({"min_length": 5})"}) {
    EXPECT_THAT(processed(text, {1, 2}, {1, 1, 1}, {1}), ElementsAre(kNever, 2)) << text;
    EXPECT_THAT(processed(text, {1, 2}, {1, 1, 1}, {1, 1}), ElementsAre(1, 2)) << text;
  }
}

TEST(LogitsProcessors, EndIsForced) {
  const std::string text = R"({"max_length": 4, "forced_eos_token_id": 0})";
  EXPECT_THAT(processed(text, {-1, 2, 3}, {1, 1, 1}), ElementsAre(0, kNever, kNever));
  EXPECT_THAT(processed(text, {-1, 2, 3}, {1, 1}), ElementsAre(-1, 2, 3));
  const std::string decay = R"({"exponential_decay_length_penalty": [1, 1.5]})";
  EXPECT_THAT(processed(decay, {-2, 2}, {1}, {1}), ElementsAre(-2, 2));
  EXPECT_THAT(processed(decay, {-2, 2}, {1}, {1, 1, 1}), ElementsAre(-2 + 2 * (1.5F * 1.5F - 1), 2));
}

TEST(LogitsProcessors, NgramsDoNotRepeat) {
  EXPECT_THAT(processed(R"({"no_repeat_ngram_size": 2})", {0, 0, 0, 0}, {1, 2, 1, 3}, {1}),
              ElementsAre(0, 0, kNever, kNever));
  EXPECT_THAT(processed(R"({"no_repeat_ngram_size": 3})", {0, 0, 0, 0}, {1, 2, 3}, {1, 2}),
              ElementsAre(0, 0, 0, kNever));
  EXPECT_THAT(processed(R"({"no_repeat_ngram_size": 1})", {0, 0, 0, 0}, {1}, {3}),
              ElementsAre(0, kNever, 0, kNever));
  EXPECT_THAT(processed(R"({"no_repeat_ngram_size": 5})", {0, 0}, {1}), ElementsAre(0, 0));
}

TEST(LogitsProcessors, RepetitionPenalties) {
  EXPECT_THAT(processed("{}", {1, 2, -3, 4}, {1, 1}, {2}, 2.0F), ElementsAre(1, 1, -6, 4));
  EXPECT_THAT(processed(R"({"encoder_repetition_penalty": 2.0})", {1, 2, -3, 4}, {1, 2}, {3}),
              ElementsAre(1, 4, -1.5, 4));
}

TEST(LogitsProcessors, TinyPenaltiesKeepTheOrder) {
  const std::vector<float> logits = processed("{}", {5.0F, 7.0F, -1.0F, 3.0F}, {0, 1, 2}, {}, 1e-38F);
  EXPECT_GT(logits[1], logits[3]);
  EXPECT_TRUE(std::isfinite(logits[0]) && std::isfinite(logits[1]));
}

TEST(LogitsProcessors, ExtremeSettingsStayFinite) {
  for (const float logit : processed(R"({"sequence_bias": [[[1], 3e38], [[1], 3e38]]})", {0, 0}, {0}))
    EXPECT_TRUE(std::isfinite(logit)) << logit;
  for (const float logit : processed(R"({"exponential_decay_length_penalty": [0, 1e30]})", {0, 1}, {1},
                                     std::vector<std::int32_t>(20, 1)))
    EXPECT_TRUE(std::isfinite(logit)) << logit;
}

TEST(LogitsProcessors, WhatOneSequenceCannotDoIsNamed) {
  const Json json =
      parse_json(R"({"num_beams": 4, "penalty_alpha": 0.6, "guidance_scale": 1.0, "diversity_penalty": 0.0,
                                   "forced_bos_token_id": null, "num_return_sequences": 1})",
                 "generation_config.json");
  std::vector<std::string_view> unsupported;
  LogitsProcessorParams::parse(JsonView(json, "generation_config.json"), unsupported);
  EXPECT_THAT(unsupported, ElementsAre("num_beams", "penalty_alpha"));
}

TEST(LogitsProcessors, BadValuesNameTheirField) {
  for (const auto& [text, field] :
       {std::pair{R"({"suppress_tokens": [9]})", "suppress_tokens"},
        {R"({"bad_words_ids": [[]]})", "bad_words_ids"},
        {R"({"sequence_bias": [[[1]]]})", "sequence_bias"},
        {R"({"encoder_repetition_penalty": 0})", "encoder_repetition_penalty"},
        {R"({"exponential_decay_length_penalty": [1, -1.0]})", "exponential_decay_length_penalty"},
        {R"({"min_length": -1})", "min_length"}}) {
    try {
      parse(text).validate(4);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(field));
    }
  }
}

TEST(LogitsProcessors, LengthOfTheAnswer) {
  SamplingParams params;
  EXPECT_EQ(params.max_answer_tokens(10, 50), 50);
  params.processors.max_length = 30;
  EXPECT_EQ(params.max_answer_tokens(10, 50), 20);
  EXPECT_THROW(params.max_answer_tokens(30, 50), Error);
  params.max_tokens = 60;
  EXPECT_EQ(params.max_answer_tokens(30, 50), 50);
}

}  // namespace
}  // namespace triptych
