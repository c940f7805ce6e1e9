// Weights in 16 bits against the reference's float32 values, and families whose evaluation has no trained
// model.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "evaluation/eval.h"
#include "evaluation/verify.h"
#include "support/shared_dir.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

const std::filesystem::path kSource = test::source_dir();

std::string describe(const CaseReport& r) {
  const NamedDifference* tap = worst(r.taps);
  return fmt::format(
      "{} prompt: {} ids: {} worst tap: {} {:.3g}, logits {:.3g}, steps {:.3g}, greedy {} of {}", r.error,
      r.prompt_problem, r.ids_problem, tap == nullptr ? "-" : tap->name,
      tap == nullptr ? 0.0 : tap->difference.relative(), r.logits ? r.logits->relative() : 0.0,
      r.step_logits ? r.step_logits->relative() : 0.0, r.greedy.n_equal, r.greedy.n_steps);
}

// Weights rounded to 16 bits: the values differ from the reference's by no more than the bound, and by more
// than float32's; every token whose margin exceeds the error is the reference's.
void expect_sixteen_bits(const std::filesystem::path& directory, DType dtype, double tolerance) {
  LoadOptions load;
  load.weight_dtype = dtype;
  const auto model = LoadedModel::open(directory, load);
  VerifyOptions options;
  options.tolerance = tolerance;
  std::int64_t n_decided = 0;
  std::int64_t n_steps = 0;
  for (const CaseReport& report : verify_model(*model, read_golden(find_golden(directory)), options)) {
    EXPECT_TRUE(report.passed) << report.name << ": " << describe(report);
    ASSERT_TRUE(report.logits.has_value()) << report.error;
    EXPECT_GT(report.logits->relative(), 1e-5);  // it was not float32 that ran
    EXPECT_EQ(report.greedy.n_decided_equal, report.greedy.n_decided) << report.name;
    n_decided += report.greedy.n_decided;
    n_steps += report.greedy.n_steps;
  }
  EXPECT_GE(n_decided * 4, n_steps * 3);  // most margins are larger: the check means something
}

// The weights of these files are bfloat16 and fit both types: products of 16-bit weights then err no more
// than those of float32.
TEST(Precision, WeightsThatFitSixteenBitsLoseNothing) {
  for (const char* name : {"llava", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"}) {
    const std::filesystem::path directory = kSource / "tests/data/golden" / name;
    const auto bytes_in = [&](DType dtype) {
      LoadOptions load;
      load.weight_dtype = dtype;
      const auto model = LoadedModel::open(directory, load);
      for (const CaseReport& report : verify_model(*model, read_golden(find_golden(directory)), {})) {
        EXPECT_TRUE(report.passed) << name << " " << report.name << ": " << describe(report);
        EXPECT_EQ(report.greedy.n_equal, report.greedy.n_steps) << name << " " << report.name;
      }
      std::int64_t out = 0;
      for (const auto& [part, size] : model->model().part_sizes().parts)
        out += size.owned_bytes + size.mapped_bytes;
      return out;
    };
    const std::int64_t in_float32 = bytes_in(DType::kF32);
    EXPECT_LT(bytes_in(DType::kBF16), in_float32 * 2 / 3) << name;
    EXPECT_LT(bytes_in(DType::kF16), in_float32 * 2 / 3) << name;
  }
}

// This one's are float16: bfloat16 rounds them.
TEST(Precision, RoundedWeightsStayWithinTheirBounds) {
  expect_sixteen_bits(kSource / "assets/models/scenes-llava", DType::kBF16, 5e-2);
}

class SharedInSixteenBits : public testing::TestWithParam<const char*> {};
TEST_P(SharedInSixteenBits, StaysWithinItsBounds) {
  TRIPTYCH_SHARED_OR_SKIP(directory, std::string("golden/models/") + GetParam());
  expect_sixteen_bits(directory, DType::kBF16, 5e-2);
  expect_sixteen_bits(directory, DType::kF16, 1e-2);
}
INSTANTIATE_TEST_SUITE_P(Precision, SharedInSixteenBits,
                         testing::Values("llava", "llava_next", "llava_onevision", "qwen_vl", "qwen2_vl",
                                         "qwen2_5_vl", "qwen3_vl", "fuyu", "blip2", "instructblip"),
                         [](const auto& at) { return std::string(at.param); });

// Families without a chat template run the same questions through their documented prompts: Fuyu's question
// ends with a newline whether it was typed or not.
TEST(Fuyu, SharedModelAnswersQuestions) {
  TRIPTYCH_SHARED_OR_SKIP(directory, "golden/models/fuyu");
  const auto model = LoadedModel::open(directory);
  const auto prompt_of = [&](const std::string& text) {
    ChatRequest request;
    ChatMessage message;
    message.role = "user";
    message.parts = {{ContentPart::Kind::kImage, ""}, {ContentPart::Kind::kText, text}};
    request.messages.push_back(std::move(message));
    request.media.push_back({.frames = {Image{1, 1, {1, 2, 3}}}, .is_video = false, .frames_per_s = 0});
    return model->prepare(request);
  };
  EXPECT_EQ(prompt_of("What color is the star?").prompt, "|SPEAKER|What color is the star?\n");
  EXPECT_EQ(prompt_of("What color is the star?").layout.input_ids,
            prompt_of("What color is the star?\n").layout.input_ids);
  const std::filesystem::path data = kSource / "assets/eval/scenes-mixed";
  std::vector<EvalQuestion> questions = read_questions(data);
  questions.resize(12);
  const EvalReport report = evaluate(*model, data, questions, {});
  EXPECT_EQ(report.total().n, 12);
  EXPECT_GT(report.total().n_answer_tokens, 12);
  EXPECT_LT(report.total().mean_logprob(), -1.0);  // random weights
}

// A prompt longer than the context without the queries is refused with both numbers; the next one is answered
// as ever. The caption of the reference set begins behind BOS and does not repeat the prompt.
TEST(Blip2, SharedModelRefusesWhatDoesNotFit) {
  TRIPTYCH_SHARED_OR_SKIP(directory, "golden/models/blip2");
  const auto model = LoadedModel::open(directory);
  const auto request = [&](const std::string& text) {
    ChatRequest out;
    ChatMessage message;
    message.role = "user";
    message.parts = {{ContentPart::Kind::kImage, ""}, {ContentPart::Kind::kText, text}};
    out.messages.push_back(std::move(message));
    out.media.push_back({.frames = {Image{2, 1, {1, 2, 3, 4, 5, 6}}}, .is_video = false, .frames_per_s = 0});
    return out;
  };
  std::string longest;
  for (int i = 0; i < 600; ++i) longest += " star";
  try {
    model->prepare(request(longest));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kContextLength) << error.what();
    EXPECT_NE(std::string(error.what()).find(std::to_string(model->info().max_context_tokens)),
              std::string::npos)
        << error.what();
  }
  Engine engine(*model);
  SamplingParams params;
  params.max_tokens = 3;
  params.ignore_eos = true;
  EXPECT_EQ(engine.generate(model->prepare(request("")), params).token_ids.size(), 3U);
}

}  // namespace
}  // namespace triptych
