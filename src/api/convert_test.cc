// The engine's types and those of the public interface say the same.
#include "api/convert.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "base/error.h"

namespace triptych::api {
namespace {

TEST(Convert, EverySamplingParameterGoesBothWays) {
  const SamplingParams params{.temperature = 0.5F,
                              .top_k = 20,
                              .top_p = 0.9F,
                              .min_p = 0.1F,
                              .typical_p = 0.8F,
                              .repetition_penalty = 1.1F,
                              .frequency_penalty = 0.2F,
                              .presence_penalty = -0.3F,
                              .logit_bias = {{7, -1.5F}},
                              .seed = 3,
                              .max_tokens = 12,
                              .stop = {"A"},
                              .stop_token_ids = {4},
                              .ignore_eos = true,
                              .n_logprobs = 2,
                              .guided_json = "{}",
                              .guided_regex = "a+",
                              .guided_choice = {"yes", "no"},
                              .guided_grammar = "root ::= \"a\""};
  const SamplingParams again = to_public(to_inner(params));
  EXPECT_EQ(again.temperature, params.temperature);
  EXPECT_EQ(again.top_k, params.top_k);
  EXPECT_EQ(again.top_p, params.top_p);
  EXPECT_EQ(again.min_p, params.min_p);
  EXPECT_EQ(again.typical_p, params.typical_p);
  EXPECT_EQ(again.repetition_penalty, params.repetition_penalty);
  EXPECT_EQ(again.frequency_penalty, params.frequency_penalty);
  EXPECT_EQ(again.presence_penalty, params.presence_penalty);
  EXPECT_EQ(again.logit_bias, params.logit_bias);
  EXPECT_EQ(again.seed, params.seed);
  EXPECT_EQ(again.max_tokens, params.max_tokens);
  EXPECT_EQ(again.stop, params.stop);
  EXPECT_EQ(again.stop_token_ids, params.stop_token_ids);
  EXPECT_EQ(again.ignore_eos, params.ignore_eos);
  EXPECT_EQ(again.n_logprobs, params.n_logprobs);
  EXPECT_EQ(again.guided_json, params.guided_json);
  EXPECT_EQ(again.guided_regex, params.guided_regex);
  EXPECT_EQ(again.guided_choice, params.guided_choice);
  EXPECT_EQ(again.guided_grammar, params.guided_grammar);
}

TEST(Convert, ErrorsKeepCodeAndMessage) {
  for (const auto code : {triptych::ErrorCode::kInvalidArgument, triptych::ErrorCode::kInvalidFile,
                          triptych::ErrorCode::kNotFound, triptych::ErrorCode::kUnsupported,
                          triptych::ErrorCode::kContextLength, triptych::ErrorCode::kOutOfMemory,
                          triptych::ErrorCode::kIo, triptych::ErrorCode::kInternal}) {
    try {
      translate_errors([&] { fail(code, "a.json: field {}", 3); });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), triptych::to_string(code));
      EXPECT_STREQ(error.what(), "a.json: field 3");
    }
  }
}

TEST(Convert, LackOfMemoryIsAnErrorAndACallersExceptionIsItsOwn) {
  try {
    translate_errors([] { throw std::bad_alloc(); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
  EXPECT_THROW(translate_errors([] { throw std::length_error("mine"); }), std::length_error);
}

TEST(Convert, AFailedRequestSaysWhy) {
  triptych::StepOutput output;
  output.id = 7;
  output.events.push_back({.token = {.id = 5, .logprob = -0.5F, .top = {{6, -1.0F}}}, .text = "a"});
  output.finish_reason = triptych::FinishReason::kError;
  output.error = triptych::RequestError{triptych::ErrorCode::kUnsupported, "no"};
  const StepOutput step = to_public(output);
  EXPECT_EQ(step.request_id, 7U);
  ASSERT_EQ(step.events.size(), 1U);
  EXPECT_EQ(step.events[0].text, "a");
  EXPECT_EQ(step.events[0].token.id, 5);
  ASSERT_EQ(step.events[0].token.top.size(), 1U);
  EXPECT_EQ(step.events[0].token.top[0].id, 6);
  EXPECT_EQ(step.finish_reason, FinishReason::kError);
  ASSERT_TRUE(step.error.has_value());
  EXPECT_EQ(step.error->code, ErrorCode::kUnsupported);
  EXPECT_EQ(step.error->message, "no");

  GenerationResult result;
  result.finish_reason = triptych::FinishReason::kError;
  result.error = output.error;
  triptych::Region region;
  region.kind = triptych::RegionKind::kPoint;
  region.label = "cat";
  region.media_index = 1;
  region.points_1000 = {{250, 500}};
  region.points_px = {{3, 4}};
  result.regions = {region};
  const Result out = to_public(std::move(result));
  EXPECT_EQ(out.finish_reason, FinishReason::kError);
  EXPECT_EQ(out.error->message, "no");
  ASSERT_EQ(out.regions.size(), 1U);
  EXPECT_EQ(to_string(out.regions[0].kind), "point");
  EXPECT_EQ(out.regions[0].label, "cat");
  EXPECT_EQ(out.regions[0].media_index, 1);
  EXPECT_EQ(out.regions[0].points_1000, (std::vector<PointPerMille>{{250, 500}}));
  EXPECT_EQ(out.regions[0].points_px, (std::vector<PointPx>{{3, 4}}));
  EXPECT_EQ(to_inner(out.regions[0]).points_px, region.points_px);
}

}  // namespace
}  // namespace triptych::api
