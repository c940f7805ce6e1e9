// Token counts of LLaVA-NeXT by arithmetic alone, against the reference's published values.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "models/model.h"
#include "weights/weight_providers.h"

namespace triptych {
namespace {

// A model of the published geometry (tower 336, patch 14, five pinpoints) and tiny widths, with random
// weights.
class LlavaNextGeometry : public testing::Test {
 protected:
  static std::unique_ptr<Model> make(const char* extra = "") {
    static Json config;
    config = parse_json(
        fmt::format(R"({{"architectures": ["LlavaNextForConditionalGeneration"], "model_type": "llava_next",
      "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]], "image_token_index": 9 {},
      "text_config": {{"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                      "num_attention_heads": 2, "vocab_size": 16}},
      "vision_config": {{"model_type": "clip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2,
                        "num_attention_heads": 2, "image_size": 336, "patch_size": 14}}}})",
                    extra),
        "config.json");
    static std::unique_ptr<Backend> backend =
        make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
    static RandomWeights weights(DType::kF32, 1);
    ModelSource source{.config = JsonView(config, "config.json"),
                       .preprocessor = std::nullopt,
                       .video_preprocessor = std::nullopt,
                       .processor = std::nullopt};
    source.weights = &weights;
    source.backend = backend.get();
    return ModelRegistry::global().find(source.config).load(source);
  }
  static std::int64_t tokens(const Model& model, int width, int height) {
    return model.plan_media({.width_px = width, .height_px = height}, {}).n_tokens;
  }
};

TEST_F(LlavaNextGeometry, PublishedTokenCounts) {
  const auto model = make();
  // width, height -> tokens.
  const int cases[][3] = {{336, 336, 1176},   {640, 480, 2340},   {480, 640, 2352},  {1024, 899, 2634},
                          {1920, 1080, 1948}, {1080, 1920, 1968}, {1000, 200, 1598}, {200, 1000, 1656},
                          {337, 337, 2928},   {3000, 100, 722},   {161, 184, 1128},  {184, 161, 1272},
                          {672, 336, 1752},   {500, 333, 1464},   {55, 88, 984},     {99, 88, 1272},
                          {176, 55, 1360}};
  for (const auto& c : cases) EXPECT_EQ(tokens(*model, c[0], c[1]), c[2]) << c[0] << "x" << c[1];
}

// The encoder's rows for every size from 1x1 to 400x400 are what the prompt has places for: the same
// arithmetic as the reference, in double with its rounding to 7 digits.
TEST_F(LlavaNextGeometry, EverySmallSizeHasAsManyRowsAsThePlanSays) {
  const auto model = make();
  for (int h = 1; h <= 400; ++h)
    for (int w = 1; w <= 400; ++w) {
      const MediaPlan plan = model->plan_media({.width_px = w, .height_px = h}, {});
      const double ch = 24.0 * plan.grid_h;
      const double cw = 24.0 * plan.grid_w;
      double rows = ch;
      double cols = cw;
      const auto round7 = [](double x) { return std::round(x * 1e7) / 1e7; };
      if (static_cast<double>(w) / h > cw / ch) {
        const auto fitted = static_cast<std::int64_t>(round7(h * (cw / w)));
        rows = ch - 2 * static_cast<double>((static_cast<std::int64_t>(ch) - fitted) / 2);
      } else {
        const auto fitted = static_cast<std::int64_t>(round7(w * (ch / h)));
        cols = cw - 2 * static_cast<double>((static_cast<std::int64_t>(cw) - fitted) / 2);
      }
      ASSERT_EQ(plan.n_tokens, 576 + static_cast<std::int64_t>(rows * (cols + 1))) << w << "x" << h;
      ASSERT_LE(plan.resized_width_px, plan.grid_w * 336);
      ASSERT_LE(plan.resized_height_px, plan.grid_h * 336);
    }
}

TEST_F(LlavaNextGeometry, EncoderGivesTheRowsThatWerePlanned) {
  const auto model = make();
  Image image{.width_px = 55, .height_px = 88, .rgb = PoolVector<std::uint8_t>(55 * 88 * 3, 100)};
  MediaItem item;
  item.plan = model->plan_media({.width_px = 55, .height_px = 88}, {});
  item.pixels = model->preprocess({&image, 1}, item.plan, nullptr);
  static std::unique_ptr<Backend> backend =
      make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  Arena arena;
  ExecContext cx(*backend, arena);
  EXPECT_EQ(model->encode_media(cx, {&item, 1}).dim(0), 984);
}

// The un-padding code itself, for every outcome that sizes from 1x1 to 400x400 have (canvas, kept rows and
// columns; about seventy): it runs on an empty picture of the right number of views.
TEST_F(LlavaNextGeometry, EncoderGivesThePlannedRowsForEveryOutcome) {
  const auto model = make();
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  std::map<std::tuple<int, int, std::int64_t>, MediaPlan> outcomes;
  for (int h = 1; h <= 400; ++h)
    for (int w = 1; w <= 400; ++w) {
      const MediaPlan plan = model->plan_media({.width_px = w, .height_px = h}, {});
      outcomes.emplace(std::tuple(plan.grid_h, plan.grid_w, plan.n_tokens), plan);
    }
  EXPECT_GT(outcomes.size(), 70U);
  Arena arena;
  for (const auto& [key, plan] : outcomes) {
    MediaItem item;
    item.plan = plan;
    item.pixels = Tensor::zeros(DType::kF32, {1 + plan.grid_h * plan.grid_w, 3, 336, 336});
    arena.reset();
    ExecContext cx(*backend, arena);
    ASSERT_EQ(model->encode_media(cx, {&item, 1}).dim(0), plan.n_tokens)
        << plan.meta.width_px << "x" << plan.meta.height_px;
    const std::int32_t ids[] = {1, 9, 2};
    ASSERT_EQ(model->expand_prompt(ids, {&plan, 1}).input_ids.size(),
              static_cast<std::size_t>(plan.n_tokens) + 2);
  }
}

TEST_F(LlavaNextGeometry, ClassTokenWithTilesIsRefused) {
  EXPECT_THROW(make(R"(, "vision_feature_select_strategy": "full")"), Error);
}

TEST_F(LlavaNextGeometry, PlaceholdersMustMatchPictures) {
  const auto model = make();
  const MediaPlan plan = model->plan_media({.width_px = 336, .height_px = 336}, {});
  const std::int32_t two[] = {1, 9, 2, 9};
  try {
    model->expand_prompt(two, {&plan, 1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the prompt has 2 image placeholders but 1 image was given");
  }
  const MediaPlan both[] = {plan, plan};
  const PromptLayout layout = model->expand_prompt(two, both);
  EXPECT_EQ(layout.input_ids.size(), 2U + 2 * 1176U);
  EXPECT_EQ(layout.runs[1].first_prompt_row, 1 + 1176 + 1);
  EXPECT_EQ(layout.next_position, 2 + 2 * 1176);
}

}  // namespace
}  // namespace triptych
