// The original repository's configurations: what is read, and what is refused by key and value.
#include "models/llava_original.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As liuhaotian/llava-v1.5-7b has it.
Json plain() {
  return parse_json(R"({"architectures": ["LlavaLlamaForCausalLM"], "model_type": "llava",
      "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
      "vocab_size": 32000, "image_aspect_ratio": "pad", "image_grid_pinpoints": null,
      "mm_hidden_size": 1024, "mm_projector_type": "mlp2x_gelu", "mm_use_im_patch_token": false,
      "mm_use_im_start_end": false, "mm_vision_select_feature": "patch", "mm_vision_select_layer": -2,
      "mm_vision_tower": "openai/clip-vit-large-patch14-336"})",
                    "config.json");
}

// As liuhaotian/llava-v1.6-vicuna-7b has it.
Json tiled() {
  Json out = plain();
  out["image_aspect_ratio"] = "anyres";
  out["mm_patch_merge_type"] = "spatial_unpad";
  out["image_grid_pinpoints"] = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
  return out;
}

LlavaOriginal parse(const Json& config, const std::map<std::string, std::int32_t, std::less<>>& tokens = {}) {
  ModelSource source{.config = JsonView(config, "config.json")};
  source.token_id = [&](std::string_view content) {
    const auto found = tokens.find(content);
    return found == tokens.end() ? std::nullopt : std::optional(found->second);
  };
  return LlavaOriginal::parse(source);
}

std::string why_refused(const Json& config,
                        const std::map<std::string, std::int32_t, std::less<>>& tokens = {}) {
  try {
    parse(config, tokens);
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kInvalidFile);
    return error.what();
  }
  return "read";
}

TEST(LlavaOriginal, PlainPictures) {
  Json config = plain();
  EXPECT_TRUE(is_llava_original(JsonView(config, "config.json")));
  EXPECT_FALSE(is_tiled_original(JsonView(config, "config.json")));
  const LlavaOriginal out = parse(config);
  EXPECT_TRUE(out.do_pad);
  EXPECT_FALSE(out.anyres);
  EXPECT_FALSE(out.brackets);
  EXPECT_EQ(out.image_token_id, 32000);
  EXPECT_EQ(out.vision.tokens_per_picture(), 576);
  config["image_aspect_ratio"] = "square";
  config["mm_patch_merge_type"] = "flat";
  EXPECT_FALSE(parse(config).do_pad);
  config.erase("image_aspect_ratio");
  EXPECT_FALSE(parse(config).do_pad);
}

TEST(LlavaOriginal, Tiles) {
  Json config = tiled();
  EXPECT_TRUE(is_tiled_original(JsonView(config, "config.json")));
  config["image_grid_pinpoints"] = {{336, 672}, {1008, 336}};
  const LlavaOriginal out = parse(config);
  ASSERT_TRUE(out.anyres);
  // Pairs are [width, height] here.
  ASSERT_EQ(out.anyres->canvases.size(), 2U);
  EXPECT_EQ(out.anyres->canvases[0].width_px, 336);
  EXPECT_EQ(out.anyres->canvases[0].height_px, 672);
  EXPECT_EQ(out.anyres->canvases[1].width_px, 1008);
  EXPECT_EQ(out.anyres->max_views, 0);
  // 1008 x 336 keeps 24 rows of 72 of a picture three times as wide as high.
  EXPECT_EQ(out.anyres->plan({.width_px = 900, .height_px = 300}).n_tokens, 576 + 24 * 73);
  config["image_aspect_ratio"] = "anyres_max_2";
  const LlavaOriginal capped = parse(config);
  EXPECT_EQ(capped.anyres->max_views, 2);
  // 72 x 24 places are 1.5 times those of two views: 24 // sqrt(1.5) is 19, 72 // sqrt(1.5) is 58.
  EXPECT_EQ(capped.anyres->plan({.width_px = 900, .height_px = 300}).n_tokens, 576 + 19 * 59);
}

TEST(LlavaOriginal, MistralByClassOrModelType) {
  const auto heads_of = [](const Json& config) { return parse(config).text.n_kv_heads; };
  Json config = tiled();
  EXPECT_EQ(parse(config).text_model_type, "llama");
  EXPECT_EQ(heads_of(config), 32);
  // As liuhaotian/llava-v1.6-mistral-7b has it.
  config["architectures"] = {"LlavaMistralForCausalLM"};
  config["model_type"] = "llava_mistral";
  EXPECT_EQ(parse(config).text_model_type, "mistral");
  EXPECT_EQ(heads_of(config), 8) << "Mistral's, where the file names none";
  EXPECT_EQ(llava_original_class(JsonView(config, "config.json")), "LlavaMistralForCausalLM");
  config.erase("architectures");
  EXPECT_EQ(parse(config).text_model_type, "mistral");
  config["architectures"] = {"LlavaMistralForCausalLM"};
  config.erase("model_type");
  EXPECT_EQ(parse(config).text_model_type, "mistral");
}

TEST(LlavaOriginal, WhatIsComputedInAnotherWayIsRefusedByKeyAndValue) {
  const auto with = [](Json config, const char* key, const Json& value) {
    config[key] = value;
    return why_refused(config);
  };
  EXPECT_EQ(why_refused(plain()), "read");
  EXPECT_EQ(why_refused(tiled()), "read");
  const auto names = [](const char* key, const char* value) {
    return AllOf(HasSubstr(std::string("config.json.") + key), HasSubstr(std::string("\"") + value + "\""));
  };
  for (const char* ratio : {"highres", "crop_split", "nobase"})
    EXPECT_THAT(with(plain(), "image_aspect_ratio", ratio), names("image_aspect_ratio", ratio));
  for (const char* ratio : {"anyresx", "anyres_max_", "anyres_max_x"})
    EXPECT_THAT(with(tiled(), "image_aspect_ratio", ratio), HasSubstr("image_aspect_ratio"));
  for (const char* merge : {"flat", "spatial", "spatial_maxpool2x2", "unires"})
    EXPECT_THAT(with(tiled(), "mm_patch_merge_type", merge), names("mm_patch_merge_type", merge));
  EXPECT_THAT(with(tiled(), "mm_patch_merge_type", nullptr), names("mm_patch_merge_type", "flat"));
  EXPECT_THAT(with(plain(), "mm_patch_merge_type", "spatial_unpad"),
              names("mm_patch_merge_type", "spatial_unpad"));
  EXPECT_THAT(with(tiled(), "image_grid_pinpoints", "(1x1),...,(6x6)"),
              names("image_grid_pinpoints", "(1x1),...,(6x6)"));
  EXPECT_THAT(with(tiled(), "image_grid_pinpoints", nullptr), HasSubstr("image_grid_pinpoints"));
  EXPECT_THAT(with(tiled(), "mm_vision_select_feature", "cls_patch"),
              names("mm_vision_select_feature", "cls_patch"));
  EXPECT_THAT(with(plain(), "mm_vision_select_feature", "cls"), names("mm_vision_select_feature", "cls"));
  EXPECT_THAT(with(plain(), "mm_projector_type", "linear"), names("mm_projector_type", "linear"));
  EXPECT_THAT(with(plain(), "s2", true), names("s2", "true"));
  EXPECT_THAT(with(plain(), "mm_resampler_type", "spatial_pool"), names("mm_resampler_type", "spatial_pool"));
  EXPECT_EQ(with(plain(), "mm_resampler_type", nullptr), "read");
  EXPECT_THAT(with(plain(), "mm_vision_tower", "google/siglip"), names("mm_vision_tower", "google/siglip"));
}

TEST(LlavaOriginal, TokensAroundAPicture) {
  Json config = plain();
  config["mm_use_im_start_end"] = true;
  config["vocab_size"] = 32002;
  EXPECT_THAT(why_refused(config), AllOf(HasSubstr("mm_use_im_start_end"), HasSubstr("<im_start>")));
  EXPECT_THAT(why_refused(config, {{"<im_start>", 32000}}),
              AllOf(HasSubstr("mm_use_im_start_end"), HasSubstr("<im_end>")));
  EXPECT_THAT(why_refused(config, {{"<im_start>", 32002}, {"<im_end>", 32001}}), HasSubstr("<im_start>"));
  const LlavaOriginal out = parse(config, {{"<im_start>", 32000}, {"<im_end>", 32001}});
  ASSERT_TRUE(out.brackets);
  EXPECT_EQ(out.image_token_id, 32002);
  const std::int32_t ids[] = {1, 32002, 13, 32002, 32002, 5};
  EXPECT_THAT(out.brackets->around(ids, 32002),
              ElementsAre(1, 32000, 32002, 32001, 13, 32000, 32002, 32001, 32000, 32002, 32001, 5));
  // A template that writes them itself.
  const std::int32_t written[] = {32000, 32002, 32001, 13};
  EXPECT_THAT(out.brackets->around(written, 32002), ElementsAre(32000, 32002, 32001, 13));
}

}  // namespace
}  // namespace triptych
