// What each family states about its linears, and what is quantized to which format for it.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "models/testing/golden_run.h"
#include "models/testing/tiny_models.h"
#include "support/source_dir.h"
#include "weights/quant_policy.h"

namespace triptych {
namespace {

struct Expected {
  std::string pixel_input, pixel_format, head;
  int n_vision, n_projector, n_language;  // linears of the body
};

void expect_choices(const PartSizes& sizes, const Expected& expected, const std::string& family) {
  const WeightFormats formats{.language = QuantFormat::parse("int4"),
                              .vision = QuantFormat::parse("int8"),
                              .lm_head = QuantFormat::parse("nf4")};
  std::map<std::string, int> n_body;
  std::vector<std::string> pixel_inputs, heads;
  for (const PartSizes::Linear& linear : sizes.linears) {
    const auto format =
        formats({linear.id, linear.traits, linear.part, linear.weight->n_out(), linear.weight->n_in()});
    const std::string word = format ? format->to_string() : "as stored";
    switch (linear.traits.role) {
      case LinearRole::kPixelInput:
        pixel_inputs.push_back(linear.id.text());
        EXPECT_EQ(word, expected.pixel_format) << family;
        break;
      case LinearRole::kHead:
        heads.push_back(linear.id.text());
        EXPECT_EQ(word, "nf4:g64") << family;
        break;
      case LinearRole::kBody:
        ++n_body[linear.part];
        EXPECT_EQ(word, linear.part == "language" ? "int4:g128:sym" : "int8:channel")
            << family << " " << linear.id.text();
        break;
    }
  }
  EXPECT_EQ(pixel_inputs, std::vector<std::string>{expected.pixel_input}) << family;
  EXPECT_EQ(heads, std::vector<std::string>{expected.head}) << family;
  EXPECT_EQ(n_body["vision"], expected.n_vision) << family;
  EXPECT_EQ(n_body["projector"], expected.n_projector) << family;
  EXPECT_EQ(n_body["language"], expected.n_language) << family;
}

TEST(LinearRoles, EveryLinearOfEveryFamily) {
  const std::map<std::string, Expected> families = {
      {"blip2",
       {"vision_model.embeddings.patch_embedding.weight", "as stored",
        "language_model.model.decoder.embed_tokens.weight", 12, 23, 12}},
      {"fuyu", {"vision_embed_tokens.weight", "int8:channel", "language_model.lm_head.weight", 0, 0, 12}},
      {"instructblip",
       {"vision_model.embeddings.patch_embedding.weight", "as stored", "language_model.lm_head.weight", 12,
        31, 12}},
      {"llava",
       {"vision_tower.vision_model.embeddings.patch_embedding.weight", "as stored",
        "language_model.lm_head.weight", 16, 2, 12}},
      {"llava_next",
       {"vision_tower.embeddings.patch_embedding.weight", "as stored", "language_model.lm_head.weight", 16, 2,
        12}},
      {"llava_onevision",
       {"vision_tower.vision_model.embeddings.patch_embedding.weight", "as stored",
        "language_model.model.embed_tokens.weight", 12, 2, 8}},
      {"llava_variants/siglip_qwen2_tied",
       {"vision_tower.embeddings.patch_embedding.weight", "as stored",
        "language_model.model.embed_tokens.weight", 12, 2, 8}},
      {"qwen2_5_vl", {"visual.patch_embed.proj.weight", "as stored", "model.embed_tokens.weight", 16, 2, 12}},
      {"qwen2_vl", {"visual.patch_embed.proj.weight", "as stored", "lm_head.weight", 12, 2, 12}},
      {"qwen3_vl",
       {"model.visual.patch_embed.proj.weight", "as stored", "model.language_model.embed_tokens.weight", 16,
        6, 12}},
      {"qwen_vl", {"transformer.visual.conv1.weight", "as stored", "lm_head.weight", 4, 6, 4}}};
  for (const auto& [family, expected] : families) {
    if (family == "qwen_vl") {
      const test::TinyModel model(family, test::Geometry::kSmall);
      expect_choices(model->part_sizes(), expected, family);
    } else {
      const test::GoldenModel model(test::source_dir() / "tests/data/golden" / family);
      expect_choices(model.model().part_sizes(), expected, family);
    }
  }
}

}  // namespace
}  // namespace triptych
