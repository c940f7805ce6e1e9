// What a table and a JSON object say of cases that pass, fail and throw.
#include "evaluation/verify_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace triptych {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr VerifyTolerances kTolerance{.values = 1e-4, .pixels = 1e-4};

Difference difference(double max_abs, double largest) {
  Difference out;
  out.max_abs = max_abs;
  out.largest = largest;
  out.n_elements = 1;
  return out;
}

CaseReport passing_case() {
  CaseReport out;
  out.name = "one picture";
  out.n_tokens = 38;
  out.n_media = 1;
  out.inputs = {{"pixel_values", difference(1e-6, 1)}};
  out.taps = {{"model.norm", difference(2e-5, 2)}};
  out.logits = difference(4e-5, 4);
  out.greedy.n_steps = out.greedy.n_equal = out.greedy.n_decided = out.greedy.n_decided_equal = 2;
  out.passed = true;
  return out;
}

TEST(VerifyReport, ARowForEveryValueAndNoComplaintWhenAllPass) {
  const std::string text = case_text(passing_case(), nullptr, kTolerance);
  for (const char* row : {"pixel_values", "model.norm", "logits", "2 of 2 tokens equal"})
    EXPECT_THAT(text, HasSubstr(row));
  EXPECT_THAT(text, Not(HasSubstr("FAIL")));
  EXPECT_THAT(text, Not(HasSubstr("in fp32")));
}

TEST(VerifyReport, FailuresStandBesideTheirValue) {
  CaseReport wrong = passing_case();
  wrong.taps[0].difference.max_abs = 1;
  wrong.missing_taps = {"model.layers.1"};
  wrong.first_diverging_tap = "model.norm";
  wrong.passed = false;
  const std::string text = case_text(wrong, nullptr, kTolerance);
  EXPECT_THAT(text, testing::ContainsRegex("model.norm .*FAIL"));
  EXPECT_THAT(text, testing::ContainsRegex("model.layers.1 .*FAIL: not produced"));
  EXPECT_THAT(text, HasSubstr("first diverging tap: model.norm"));
  const JsonOut json = case_json(wrong, kTolerance);
  EXPECT_EQ(json.at("passed"), false);
  EXPECT_EQ(json.at("taps").at("model.norm").at("passed"), false);
  EXPECT_EQ(json.at("logits").at("passed"), true);
  EXPECT_EQ(json.at("first_diverging_tap"), "model.norm");
  EXPECT_THAT(summary_table({passing_case(), wrong}), HasSubstr("1/2"));  // of its taps, one is missing
}

TEST(VerifyReport, AnErrorReplacesAllValues) {
  CaseReport thrown;
  thrown.name = "broken";
  thrown.error = "0.png: no image";
  EXPECT_THAT(case_text(thrown, nullptr, kTolerance), HasSubstr("FAIL: 0.png: no image"));
  EXPECT_THAT(summary_table({thrown}), HasSubstr("FAIL: 0.png: no image"));
  const JsonOut json = case_json(thrown, kTolerance);
  EXPECT_EQ(json.at("error"), "0.png: no image");
  EXPECT_FALSE(json.contains("logits"));
}

TEST(VerifyReport, TheRunInFloat32StandsBeside) {
  const VerifyBaseline fp32{"bf16", {passing_case()}};
  ASSERT_NE(fp32.find("one picture"), nullptr);
  EXPECT_EQ(fp32.find("another"), nullptr);
  CaseReport rounded = passing_case();
  rounded.logits->max_abs = 0.04;
  EXPECT_THAT(case_text(rounded, fp32.find("one picture"), {.values = 0.05, .pixels = 1e-4}),
              testing::ContainsRegex("logits +4.0e-02 +1.0e-02 +1.0e-05"));
  const std::string table = comparison_table({rounded}, fp32);
  EXPECT_THAT(table, HasSubstr("logits fp32"));
  EXPECT_THAT(table, HasSubstr("bf16"));
}

}  // namespace
}  // namespace triptych
