// Flags, help, completion and manual page.
#include "cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/help_tree.h"
#include "engine/sampling.h"
#include "tensor/dtype.h"

namespace triptych::cli {
namespace {

using testing::HasSubstr;

TEST(SamplingFlags, WhatIsNotGivenKeepsTheDefault) {
  SamplingFlags flags;
  CLI::App app;
  flags.add_to(app);
  app.parse(
      "--top-p 0.9 --stop A --stop B --logit-bias 7=-100 --logit-bias 8=1.5 --seed 3 --stop-token-ids 4,5 "
      "--presence-penalty -1 --max-tokens 12");
  SamplingParams defaults;
  defaults.temperature = 0.5F;
  defaults.top_k = 20;
  const SamplingParams params = flags.over(defaults);
  EXPECT_EQ(params.temperature, 0.5F);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_EQ(params.top_p, 0.9F);
  EXPECT_EQ(params.presence_penalty, -1.0F);
  EXPECT_EQ(params.stop, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(params.stop_token_ids, (std::vector<std::int32_t>{4, 5}));
  EXPECT_EQ(params.logit_bias, (std::vector<std::pair<std::int32_t, float>>{{7, -100.0F}, {8, 1.5F}}));
  EXPECT_EQ(params.seed, 3U);
  EXPECT_EQ(params.max_tokens, 12);
}

TEST(SamplingFlags, ThePublicParametersGetTheSame) {
  SamplingFlags flags;
  flags.top_p = 0.9F;
  flags.stop = {"A"};
  flags.ignore_eos = true;
  api::SamplingParams defaults;
  defaults.temperature = 0.5F;
  const api::SamplingParams params = flags.over(defaults);
  EXPECT_EQ(params.temperature, 0.5F);
  EXPECT_EQ(params.top_p, 0.9F);
  EXPECT_EQ(params.stop, std::vector<std::string>{"A"});
  EXPECT_TRUE(params.ignore_eos);
}

TEST(ModelFlags, ErrorsOfWeightTypesNameTheFlag) {
  const auto message = [](const ModelFlags& flags) {
    try {
      static_cast<void>(flags.model_options());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  ModelFlags flags;
  EXPECT_EQ(message(flags), "");
  flags.dtype = "int9";
  EXPECT_THAT(message(flags), HasSubstr("--weights"));
  flags.dtype = "int8";
  flags.vision_weights = "fp16";
  EXPECT_THAT(message(flags), HasSubstr("--vision-weights: expected auto, int8"));
  flags.vision_weights = "auto";
  flags.lm_head = "int4:g7";
  EXPECT_THAT(message(flags), HasSubstr("--lm-head"));
}

TEST(SamplingFlags, BadLogitBias) {
  for (const char* text : {"7", "=1", "7=", "x=1", "7=1x", "99999999999=1"}) {
    SamplingFlags flags;
    flags.logit_bias = {text};
    EXPECT_THROW(flags.over(SamplingParams()), Error) << text;
  }
}

TEST(Flags, DTypes) {
  EXPECT_EQ(parse_dtype("auto"), std::nullopt);
  EXPECT_EQ(parse_dtype("bf16"), DType::kBF16);
  EXPECT_THROW(parse_dtype("fp64"), Error);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    EXPECT_EQ(parse_dtype(dtype_word(dtype)), dtype);
}

class ProgramTest : public testing::Test {
 protected:
  ProgramTest() { build_program(program_, action_); }
  CLI::App program_;
  Action action_;
};

TEST_F(ProgramTest, EveryVerbHasExamplesAndDescribedFlags) {
  const std::vector<HelpVerb> tree = help_tree(program_);
  ASSERT_GE(tree.size(), 8U);
  for (std::size_t i = 1; i < tree.size(); ++i) {
    EXPECT_THAT(tree[i].footer, HasSubstr("Examples:")) << tree[i].name;
    EXPECT_THAT(tree[i].footer, HasSubstr("triptych " + tree[i].name)) << tree[i].name;
    for (const HelpOption& option : tree[i].options) {
      EXPECT_FALSE(option.description.empty()) << tree[i].name;
      EXPECT_FALSE(option.names.empty() && option.positional.empty());
    }
  }
}

TEST_F(ProgramTest, HelpTreeKnowsValuesAndChoices) {
  for (const HelpVerb& verb : help_tree(program_)) {
    if (verb.name != "run") continue;
    std::map<std::string, HelpOption> by_name;
    for (const HelpOption& option : verb.options)
      by_name[option.names.empty() ? option.positional : option.names.front()] = option;
    EXPECT_EQ(by_name.at("MODEL").value, "DIR");
    EXPECT_EQ(by_name.at("--image").value, "FILE");
    EXPECT_EQ(by_name.at("--json").value, "");
    EXPECT_EQ(by_name.at("--threads").value, "N");
    EXPECT_THAT(
        by_name.at("--kv-cache-dtype").choices,
        testing::UnorderedElementsAre("auto", "fp32", "fp16", "bf16", "int8", "fp8", "fp8_e4m3", "int4"));
    EXPECT_EQ(by_name.at("--kv-cache-dtype").value, "TYPE");
    return;
  }
  FAIL() << "no verb run";
}

TEST_F(ProgramTest, CompletionsNameEveryVerbAndFlag) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(program_, shell);
    for (const HelpVerb& verb : help_tree(program_)) {
      EXPECT_THAT(script, HasSubstr(verb.name)) << shell;
      for (const HelpOption& option : verb.options)
        for (const std::string& name : option.names)
          EXPECT_THAT(script, HasSubstr(std::string(shell) == "fish" && name.starts_with("--")
                                            ? "-l " + name.substr(2)
                                        : std::string(shell) == "fish" ? "-s " + name.substr(1)
                                                                       : name))
              << shell;
    }
  }
  EXPECT_THROW(completion_script(program_, "cmd"), Error);
}

TEST_F(ProgramTest, ManPageHasItsSections) {
  const std::string page = man_page(program_);
  for (const char* part : {".TH TRIPTYCH 1", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SS triptych run",
                           ".SS triptych verify", "\\fB\\-\\-max\\-tokens\\fR", ".SH ENVIRONMENT"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_EQ(page.find("help-man"), std::string::npos);
}

TEST(Version, NamesBuildAndInstructionSet) {
  EXPECT_THAT(version_text(), HasSubstr("triptych 0."));
  EXPECT_THAT(version_text(), HasSubstr("instruction set "));
}

}  // namespace
}  // namespace triptych::cli
