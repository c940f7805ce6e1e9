#include "weights/weight_names.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

TEST(WeightNames, OldNewAndOriginalNamesMeetInOne) {
  const char* cases[][2] = {
      // LLaVA on the hub, as newer tools write it, and in the original repository.
      {"language_model.model.layers.3.mlp.up_proj.weight", "lm.layers.3.mlp.up_proj.weight"},
      {"model.language_model.layers.3.mlp.up_proj.weight", "lm.layers.3.mlp.up_proj.weight"},
      {"model.layers.3.mlp.up_proj.weight", "lm.layers.3.mlp.up_proj.weight"},
      {"language_model.lm_head.weight", "lm_head.weight"},
      {"lm_head.weight", "lm_head.weight"},
      {"vision_tower.vision_model.pre_layrnorm.bias", "vision_tower.pre_layrnorm.bias"},
      {"model.vision_tower.vision_model.pre_layrnorm.bias", "vision_tower.pre_layrnorm.bias"},
      {"model.vision_tower.pre_layrnorm.bias", "vision_tower.pre_layrnorm.bias"},
      {"model.vision_tower.vision_tower.vision_model.pre_layrnorm.bias", "vision_tower.pre_layrnorm.bias"},
      {"multi_modal_projector.linear_1.weight", "multi_modal_projector.linear_1.weight"},
      {"model.multi_modal_projector.linear_1.weight", "multi_modal_projector.linear_1.weight"},
      {"model.mm_projector.0.weight", "multi_modal_projector.linear_1.weight"},
      {"model.mm_projector.2.bias", "multi_modal_projector.linear_2.bias"},
      {"image_newline", "image_newline"},
      {"model.image_newline", "image_newline"},
      // SigLIP's pooling head, which no model reads.
      {"vision_tower.vision_model.head.mlp.fc1.weight", ""},
      {"model.vision_tower.head.probe", ""},
      // Fuyu.
      {"language_model.model.final_layernorm.weight", "lm.final_layernorm.weight"},
      {"model.vision_embed_tokens.weight", "vision_embed_tokens.weight"},
      // Unknown names stay.
      {"something.else", "something.else"},
  };
  for (const auto& c : cases) EXPECT_EQ(canonical_weight_name(c[0]), c[1]);
}

}  // namespace
}  // namespace triptych
