#include "compress/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace triptych::compress {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& yaml) {
  try {
    parse_recipe(yaml, "r.yaml");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Recipe, ThoseThatShipAreReadAsTheyAreWritten) {
  for (const std::string& name : shipped_recipe_names()) {
    const Recipe recipe = shipped_recipe(name);
    EXPECT_EQ(recipe.name, name);
    const std::string text = to_yaml(recipe);
    EXPECT_EQ(to_yaml(parse_recipe(text, "again")), text);
    EXPECT_EQ(make_passes(recipe).size(), recipe.passes.size());
  }
  EXPECT_THAT([] { shipped_recipe("tiny"); }, testing::ThrowsMessage<Error>(HasSubstr("smallest")));
}

TEST(Recipe, WhatIsGivenCountsAndTheRestIsAsInBalanced) {
  const Recipe recipe = parse_recipe(
      "recipe: \"12\"\n"
      "formats: {vision: auto}\n"
      "budget:\n  bytes: 4.4GB\n  choices: [int8, \"int4:g32\"]\n"
      "passes:\n  - fold_residual: {alpha: 0.3}\n  - round:\n      feedback: 0\n",
      "r.yaml");
  EXPECT_EQ(recipe.name, "12");
  EXPECT_EQ(recipe.formats.language, shipped_recipe("balanced").formats.language);
  EXPECT_FALSE(recipe.formats.vision.has_value());
  EXPECT_EQ(recipe.budget.bytes, 4.4e9);
  ASSERT_EQ(recipe.budget.choices.size(), 2U);
  ASSERT_EQ(recipe.passes.size(), 2U);
  EXPECT_EQ(recipe.passes[0].settings.at("alpha"), 0.3);
  EXPECT_EQ(recipe.passes[0].settings.at("lambda"), std::nullopt);
  EXPECT_EQ(recipe.passes[1].settings.at("feedback"), 0.0);
  EXPECT_EQ(recipe.passes[1].settings.at("clip_to"), 0.7);
}

TEST(Recipe, WhatIsWrongIsNamed) {
  EXPECT_THAT(refusal("formats: {tower: int8}"), HasSubstr("r.yaml: formats.tower: unknown key"));
  EXPECT_THAT(refusal("formats: {vision: int5}"), HasSubstr("int5"));
  EXPECT_THAT(refusal("budget: {bits: 0.5}"), HasSubstr("budget.bits"));
  EXPECT_THAT(refusal("budget: {bits: 4, max_loss: 1}"), HasSubstr("one of bits, bytes and max_loss"));
  EXPECT_THAT(refusal("budget: {bytes: 4 apples}"), HasSubstr("4 apples"));
  EXPECT_THAT(refusal("passes: [equalize]"), HasSubstr("round"));
  EXPECT_THAT(refusal("passes: [round, equalize]"), HasSubstr("in front of round"));
  EXPECT_THAT(refusal("passes: [bias_correction, round]"), HasSubstr("behind round"));
  EXPECT_THAT(refusal("passes: [round, round]"), HasSubstr("one pass that rounds"));
  EXPECT_THAT(refusal("passes: [sharpen, round]"), HasSubstr("there is no pass sharpen"));
  EXPECT_THAT(refusal("passes: [{round: {speed: 1}}]"), HasSubstr("no such setting"));
  EXPECT_THAT(refusal("passes: [{round: {clip_to: auto}}]"), HasSubstr("clip_to"));
  EXPECT_THAT(refusal("a: 1\na: 2\n"), HasSubstr("r.yaml:2: the key a occurs twice"));
  EXPECT_THAT(refusal("recipe: &x y\n"), HasSubstr("anchors"));
  EXPECT_THAT(refusal("recipe: !!binary y\n"), HasSubstr("tags"));
  EXPECT_THAT(refusal("recipe: {a: [1\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(refusal(std::string(100, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal("just words"), HasSubstr("expected a map"));
  EXPECT_THAT(refusal(""), HasSubstr("expected a map"));
  EXPECT_THAT(refusal("recipe: " + std::string(70000, 'x')), HasSubstr("at most 65536"));
}

TEST(Recipe, SizesHaveUnits) {
  EXPECT_EQ(parse_bytes("4.4GB", "x"), 4.4e9);
  EXPECT_EQ(parse_bytes("2 GiB", "x"), 2147483648.0);
  EXPECT_EQ(parse_bytes("123456", "x"), 123456.0);
  for (const char* bad : {"", "GB", "-1GB", "4.4G", "nan", "1e300GB", "0"})
    EXPECT_THROW(parse_bytes(bad, "x"), Error) << bad;
}

}  // namespace
}  // namespace triptych::compress
