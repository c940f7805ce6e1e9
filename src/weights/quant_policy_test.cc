#include "weights/quant_policy.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

const QuantFormat kInt4 = QuantFormat::parse("int4");
const QuantFormat kInt8 = QuantFormat::parse("int8");
const QuantFormat kNf4 = QuantFormat::parse("nf4");

// By nothing but what the family states: the names say the opposite.
TEST(WeightFormats, RolesDecideNotNames) {
  const WeightFormats formats{.language = kInt4, .vision = kInt8, .lm_head = kNf4};
  const auto chosen = [&](const LinearTraits& traits, std::string_view model_part, std::string name) {
    return formats({{std::move(name)}, traits, model_part, 8, 8});
  };
  EXPECT_EQ(chosen({}, "language", "lm_head.weight"), kInt4);
  EXPECT_EQ(chosen({}, "vision", "patch_embed.weight"), kInt8);
  EXPECT_EQ(chosen({}, "projector", "conv1.weight"), kInt8);
  EXPECT_EQ(chosen({.role = LinearRole::kHead}, "language", "layers.0.weight"), kNf4);
  EXPECT_EQ(chosen({.role = LinearRole::kPixelInput}, "vision", "blocks.0.weight"), std::nullopt);
}

TEST(WeightFormats, PixelsThatAreIntegersTakeInt8Only) {
  const LinearInfo pixels{
      {"a.weight"}, {.role = LinearRole::kPixelInput, .int8_inputs = true}, "vision", 8, 8};
  EXPECT_EQ((WeightFormats{.language = kInt4, .vision = kInt8, .lm_head = {}}(pixels)), kInt8);
  EXPECT_EQ((WeightFormats{.language = kInt4, .vision = kInt4, .lm_head = {}}(pixels)), std::nullopt);
  EXPECT_EQ((WeightFormats{.language = kInt4, .vision = {}, .lm_head = {}}(pixels)), std::nullopt);
}

TEST(WeightFormats, NothingGivenIsAsStored) {
  for (const LinearRole role : {LinearRole::kBody, LinearRole::kHead, LinearRole::kPixelInput})
    EXPECT_EQ(WeightFormats{}({{"a.weight"}, {.role = role}, "language", 8, 8}), std::nullopt);
}

}  // namespace
}  // namespace triptych
