// Geometry and prompts of Fuyu by arithmetic alone, against the published values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "models/model.h"
#include "models/testing/golden_run.h"
#include "support/shared_dir.h"
#include "weights/weight_providers.h"

namespace triptych {
namespace {

// The published vocabulary and patch size, tiny widths, random weights.
const Model& model() {
  static const Json config =
      parse_json(R"({"architectures": ["FuyuForCausalLM"], "model_type": "fuyu", "vocab_size": 262144,
      "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "patch_size": 30})",
                 "config.json");
  static const std::unique_ptr<Backend> backend =
      make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  static RandomWeights weights(DType::kBF16, 1);
  static const std::unique_ptr<Model> made = [] {
    ModelSource source{.config = JsonView(config, "config.json")};
    source.weights = &weights;
    source.backend = backend.get();
    return ModelRegistry::global().find(source.config).load(source);
  }();
  return *made;
}

MediaPlan plan(int width, int height) {
  MediaMeta meta;
  meta.width_px = width;
  meta.height_px = height;
  return model().plan_media(meta, {});
}

std::optional<ErrorCode> code_of_plan(int width, int height) {
  try {
    plan(width, height);
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

TEST(Fuyu, PublishedTokenCounts) {
  // height, width -> rows, columns, places in the prompt.
  const int cases[][5] = {{300, 64, 10, 3, 40},       {640, 480, 22, 16, 374},    {1080, 1920, 36, 64, 2340},
                          {2160, 3840, 36, 64, 2340}, {5000, 5000, 36, 36, 1332}, {768, 1366, 26, 46, 1222},
                          {1365, 2048, 36, 54, 1980}};
  for (const auto& c : cases) {
    const MediaPlan p = plan(c[1], c[0]);
    EXPECT_EQ(p.grid_h, c[2]) << c[0] << "x" << c[1];
    EXPECT_EQ(p.grid_w, c[3]) << c[0] << "x" << c[1];
    EXPECT_EQ(p.n_prompt_tokens, c[4]) << c[0] << "x" << c[1];
  }
}

TEST(Fuyu, PictureFirstThenBosThenTextThenAnswer) {
  const MediaPlan p = plan(64, 45);  // 2 rows of 3
  const std::int32_t ids[] = {71011, 5, 6};
  const PromptLayout layout = model().expand_prompt(ids, {&p, 1});
  EXPECT_THAT(layout.input_ids,
              testing::ElementsAre(71011, 71011, 71011, 71019, 71011, 71011, 71011, 71019, 1, 5, 6, 71122));
  ASSERT_EQ(layout.runs.size(), 2U);
  EXPECT_EQ(layout.runs[1].first_media_row, 3);
  EXPECT_EQ(layout.runs[1].first_prompt_row, 4);
  EXPECT_EQ(layout.next_position, 12);
  const std::int32_t text_only[] = {71013, 5};
  EXPECT_THAT(model().expand_prompt(text_only, {}).input_ids, testing::ElementsAre(71013, 5));
}

TEST(Fuyu, OnePictureBeforeTheText) {
  const MediaPlan p[] = {plan(30, 30), plan(30, 30)};
  const std::int32_t behind[] = {5, 71011};
  EXPECT_THROW(model().expand_prompt(behind, {p, 1}), Error);
  const std::int32_t two[] = {71011, 71011};
  EXPECT_THROW(model().expand_prompt(two, p), Error);
  EXPECT_THROW(model().expand_prompt(two, {p, 1}), Error);
}

TEST(Fuyu, PaddingIsNearlyBlackAndNothingIsEnlarged) {
  Image image{.width_px = 31, .height_px = 1, .rgb = PoolVector<std::uint8_t>(31 * 3, 255)};
  const MediaPlan p = plan(31, 1);
  EXPECT_EQ(p.resized_width_px, 31);
  const Tensor pixels = model().preprocess({&image, 1}, p, nullptr);
  ASSERT_EQ(pixels.shape(), Shape({2, 2700}));
  EXPECT_FLOAT_EQ(pixels.f32()[0], 1.0F);
  EXPECT_FLOAT_EQ(pixels.f32()[30 * 3], -0.99215686F);    // second row of the first patch
  EXPECT_FLOAT_EQ(pixels.f32()[2700], 1.0F);              // the 31st column
  EXPECT_FLOAT_EQ(pixels.f32()[2700 + 3], -0.99215686F);  // and what is beside it
}

// A head that is neither stored nor tied is never a random one; tied on demand it is the embedding.
TEST(Fuyu, MissingHeadIsRefused) {
  TRIPTYCH_SHARED_OR_SKIP(directory, "golden/models/fuyu");
  const auto without_head = [&](bool tied) {
    test::GoldenModel model(directory, [&](Json& config, WeightTable& weights) {
      for (const char* name : {"lm_head.weight", "language_model.lm_head.weight"})
        if (weights.contains(name)) weights.erase(name);
      config["tie_word_embeddings"] = tied;
      if (config.contains("text_config")) config["text_config"]["tie_word_embeddings"] = tied;
    });
    return model.model().info().vocab_size;
  };
  EXPECT_GT(without_head(true), 0);
  try {
    without_head(false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("lm_head.weight"));
    EXPECT_THAT(error.what(), testing::HasSubstr("tie_word_embeddings"));
  }
}

// A picture larger than 1920 x 1080 is shrunk to fit. One so narrow that no pixel of its width would be left
// is refused, and no other.
TEST(Fuyu, EverySizeWorksUnlessNoPixelIsLeft) {
  for (int w = 1; w <= 40; ++w)
    for (int h = 1; h <= 40; ++h) EXPECT_EQ(plan(w, h).n_tokens, ((w + 29) / 30) * ((h + 29) / 30));
  for (int n = 1; n <= 3000; ++n)
    for (const auto& [w, h] : {std::pair(1, n), std::pair(n, 1)}) {
      if (w > 1920 || h > 1080) {
        EXPECT_EQ(code_of_plan(w, h), ErrorCode::kInvalidArgument) << w << "x" << h;
        continue;
      }
      EXPECT_EQ(plan(w, h).n_tokens, (n + 29) / 30) << w << "x" << h;
    }
  EXPECT_EQ(plan(2, 2160).n_tokens, 36);  // 1 x 1080
  EXPECT_EQ(code_of_plan(2, 2161), ErrorCode::kInvalidArgument);
  EXPECT_EQ(plan(8000, 8000).n_prompt_tokens, 1332);
}

}  // namespace
}  // namespace triptych
