// Answers under a constraint, of the model that ships.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "engine/engine.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using testing::HasSubstr;

constexpr const char* kSchema = R"({"type":"object","properties":{
    "shape":{"enum":["circle","square","triangle"]},
    "size":{"anyOf":[{"const":"small"},{"const":"large"}]},
    "n":{"type":"integer","minimum":1,"maximum":20},
    "note":{"type":"string","maxLength":12},
    "code":{"type":"string","pattern":"^[A-Z]{2}[0-9]{1,3}$"},
    "ok":{"type":"boolean"}},
  "required":["shape","size","n","note","ok"],"additionalProperties":false})";

// By hand what kSchema says.
void expect_valid(const std::string& text) {
  const Json value = Json::parse(text, nullptr, false);
  ASSERT_TRUE(value.is_object()) << text;
  EXPECT_THAT(value.at("shape").get<std::string>(), testing::AnyOf("circle", "square", "triangle"));
  EXPECT_THAT(value.at("size").get<std::string>(), testing::AnyOf("small", "large"));
  EXPECT_THAT(value.at("n").get<int>(), testing::AllOf(testing::Ge(1), testing::Le(20)));
  EXPECT_LE(value.at("note").get<std::string>().size(), 12U * 4);
  EXPECT_TRUE(value.at("ok").is_boolean());
  if (value.contains("code")) {
    EXPECT_TRUE(std::regex_match(value.at("code").get<std::string>(), std::regex("[A-Z]{2}[0-9]{1,3}")));
  }
  EXPECT_EQ(value.size(), value.contains("code") ? 6U : 5U);
}

class ConstrainedAnswer : public testing::Test {
 protected:
  static LoadedModel& model() {
    static const std::unique_ptr<LoadedModel> loaded = LoadedModel::open(
        test::source_path("assets/models/scenes-llava"), {.n_threads = 2, .batch_invariant = true});
    return *loaded;
  }
  static PreparedRequest ask(const std::string& text) {
    const auto file = MappedFile::open(test::source_path("assets/eval/scenes/0000.png"));
    ChatRequest out;
    ChatMessage message;
    message.role = "user";
    message.parts.push_back({ContentPart::Kind::kImage, ""});
    message.parts.push_back({ContentPart::Kind::kText, text});
    out.media.push_back({.frames = {decode_image(file->bytes(), {}, "0000.png")}});
    out.messages.push_back(std::move(message));
    return model().prepare(out);
  }
  static GenerationResult answer(const std::string& text, const SamplingParams& params) {
    Engine engine(model(), {.max_context_tokens = 512});
    return engine.generate(ask(text), params);
  }
};

TEST_F(ConstrainedAnswer, IsOneOfTheChoices) {
  SamplingParams params;
  params.constraint.choice = {"circle", "square", "triangle"};
  const auto right = answer("Which shape is orange?", params);
  EXPECT_EQ(right.text, "square") << "as without a constraint";
  EXPECT_EQ(right.finish_reason, FinishReason::kStop);
  params.constraint.choice = {"yes, it is", "no"};
  EXPECT_THAT(answer("Which shape is orange?", params).text, testing::AnyOf("yes, it is", "no"));
  params.temperature = 2.0F;
  for (params.seed = 1; *params.seed <= 8; ++*params.seed)
    EXPECT_THAT(answer("Which shape is orange?", params).text, testing::AnyOf("yes, it is", "no"));
}

TEST_F(ConstrainedAnswer, IsADocumentOfTheSchema) {
  SamplingParams params;
  params.constraint.json_schema = kSchema;
  std::string streamed;
  Engine engine(model(), {.max_context_tokens = 512});
  const auto greedy = engine.generate(ask("Describe the image."), params, [&](const TokenEvent& event) {
    streamed += event.text;
    return true;
  });
  expect_valid(greedy.text);
  EXPECT_EQ(streamed, greedy.text);
  EXPECT_EQ(greedy.finish_reason, FinishReason::kStop);
  params.temperature = 1.5F;
  for (params.seed = 1; *params.seed <= 12; ++*params.seed) {
    const auto sampled = answer("Describe the image.", params);
    if (sampled.finish_reason == FinishReason::kStop) expect_valid(sampled.text);
  }
}

TEST_F(ConstrainedAnswer, MatchesTheRegexOrTheGrammar) {
  SamplingParams params;
  params.temperature = 1.0F;
  params.seed = 5;
  params.constraint.regex = "[a-z]{3,9}( at [0-9]{2})?[.!]";
  const std::regex expected(params.constraint.regex);
  for (; *params.seed <= 12; ++*params.seed) {
    const auto result = answer("Describe the image.", params);
    EXPECT_TRUE(std::regex_match(result.text, expected)) << result.text;
  }
  params.constraint = {.grammar = "root ::= \"(\" root \")\" | [0-9]{2}"};
  params.seed = 3;
  const std::string nested = answer("Describe the image.", params).text;
  EXPECT_TRUE(std::regex_match(nested, std::regex("\\(*[0-9]{2}\\)*"))) << nested;
  EXPECT_EQ(std::count(nested.begin(), nested.end(), '('), std::count(nested.begin(), nested.end(), ')'));
}

TEST_F(ConstrainedAnswer, EndsWhereNothingCanFollow) {
  SamplingParams params;
  params.constraint.regex = "[0-9]{5}";
  params.ignore_eos = true;
  const auto result = answer("Describe the image.", params);
  EXPECT_EQ(result.text.size(), 5U);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  // The end of an answer may not come before, however likely it is made.
  params.ignore_eos = false;
  for (const std::int32_t id : model().stop_token_ids()) params.logit_bias.emplace_back(id, 100.0F);
  EXPECT_EQ(answer("Describe the image.", params).text.size(), 5U);
  params.constraint.regex = "[0-9]{2}[a-z]*";
  EXPECT_EQ(answer("Describe the image.", params).text.size(), 2U) << "and comes where it may";
}

TEST_F(ConstrainedAnswer, IsCutByItsLimitAndByStopStrings) {
  SamplingParams params;
  params.constraint.regex = "[a-z]{40}";
  params.max_tokens = 3;
  params.processors.forced_eos_token_id = model().stop_token_ids();
  const auto cut = answer("Describe the image.", params);
  EXPECT_EQ(cut.finish_reason, FinishReason::kLength);
  EXPECT_EQ(cut.token_ids.size(), 3U);
  params.max_tokens = 0;
  params.constraint = {.choice = {"one two"}};
  params.stop = {" t"};
  const auto stopped = answer("Describe the image.", params);
  EXPECT_EQ(stopped.text, "one");
  EXPECT_EQ(stopped.stop_string, " t");
}

TEST_F(ConstrainedAnswer, EachOfABatchHasItsOwn) {
  std::vector<SamplingParams> all(4);
  all[0].constraint.choice = {"yes", "no"};
  all[1].constraint.json_schema = kSchema;
  all[2].constraint.json_schema = kSchema;
  all[2].temperature = 1.0F;
  all[2].seed = 4;
  std::vector<std::string> alone;
  for (const SamplingParams& params : all) alone.push_back(answer("Describe the image.", params).text);
  Engine engine(model(), {.max_context_tokens = 512, .kv_cache_tokens = 4096});
  std::vector<RequestId> ids;
  for (const SamplingParams& params : all) ids.push_back(engine.submit(ask("Describe the image."), params));
  while (engine.has_work()) engine.step();
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(engine.take_result(ids[i])->text, alone[i]) << i;
}

TEST_F(ConstrainedAnswer, BadConstraintsAreRefusedAtOnce) {
  Engine engine(model(), {.max_context_tokens = 512});
  const auto error_of = [&](ConstraintSpec spec) -> std::string {
    SamplingParams params;
    params.constraint = std::move(spec);
    try {
      engine.submit(ask("Describe the image."), params);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(error_of({.json_schema = R"({"items":{"contains":{}}})"}),
              HasSubstr(R"(guided_json: $.items: keyword "contains" is not supported)"));
  EXPECT_THAT(error_of({.regex = "("}), HasSubstr("guided_regex: "));
  EXPECT_THAT(error_of({.choice = {"a", ""}}), HasSubstr("guided_choice: "));
  EXPECT_THAT(error_of({.grammar = "root ::= x"}), HasSubstr("guided_grammar: rule x"));
  EXPECT_THAT(error_of({.regex = "a", .choice = {"b"}}), HasSubstr("expected one of guided_json"));
  EXPECT_FALSE(engine.has_work());
  // Processors that leave nothing of what the constraint lets through end the answer with an error that says
  // so.
  SamplingParams params;
  params.constraint.regex = "9";
  for (const char* content : {"9", "▁9", "<0x39>"})
    if (const auto id = model().tokenizer().token_to_id(content))
      params.processors.suppress_tokens.push_back(*id);
  try {
    engine.generate(ask("Describe the image."), params);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("its constraint"));
  }
}

}  // namespace
}  // namespace triptych
