// Variants of LLaVA that have no reference values here: token counts, and that they run.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "models/model.h"
#include "models/testing/golden_run.h"
#include "support/source_dir.h"
#include "weights/weight_providers.h"

namespace triptych {
namespace {

struct Loaded {
  Json config;
  std::unique_ptr<Backend> backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  RandomWeights weights{DType::kF32, 1};
  std::unique_ptr<Model> model;
};

std::unique_ptr<Loaded> load(const std::string& vision, const std::string& extra) {
  auto out = std::make_unique<Loaded>();
  out->config = parse_json(
      R"({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "image_token_index": 9, )" +
          extra + R"("text_config": {"model_type": "llama", "hidden_size": 8, "intermediate_size": 8,
      "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 16}, "vision_config": {"hidden_size": 8,
      "intermediate_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, )" +
          vision + "}}",
      "config.json");
  ModelSource source{.config = JsonView(out->config, "config.json")};
  source.weights = &out->weights;
  source.backend = out->backend.get();
  out->model = ModelRegistry::global().find(source.config).load(source);
  return out;
}

// Rows that the encoder gives for one picture; the plan must say the same.
std::int64_t encoded_rows(const std::string& vision, const std::string& extra) {
  const auto loaded = load(vision, extra);
  Image image{.width_px = 50, .height_px = 40, .rgb = PoolVector<std::uint8_t>(50 * 40 * 3, 100)};
  MediaMeta meta;
  meta.width_px = 50;
  meta.height_px = 40;
  MediaItem item;
  item.plan = loaded->model->plan_media(meta, {});
  item.pixels = loaded->model->preprocess({&image, 1}, item.plan, nullptr);
  Arena arena;
  ExecContext cx(*loaded->backend, arena);
  const std::int64_t rows = loaded->model->encode_media(cx, {&item, 1}).dim(0);
  EXPECT_EQ(rows, item.plan.n_tokens);
  return rows;
}

const std::string kClip = R"("model_type": "clip_vision_model", "image_size": 336, "patch_size": 14)";
const std::string kSiglip = R"("model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14)";

TEST(Llava, TokensOfTowersWithAndWithoutClassToken) {
  EXPECT_EQ(encoded_rows(kClip, ""), 576);
  EXPECT_EQ(encoded_rows(kClip, R"("vision_feature_select_strategy": "full", )"), 577);
  // 384 is no multiple of 14: 27 x 27 patches, the last 6 pixels are not read.
  EXPECT_EQ(
      encoded_rows(kSiglip, R"("vision_feature_select_strategy": "full", "vision_feature_layer": -1, )"),
      729);
  EXPECT_EQ(encoded_rows(kClip, R"("vision_feature_layer": [-2, 0, 1], )"), 576);
  EXPECT_EQ(encoded_rows(kClip, R"("multimodal_projector_bias": false, )"), 576);
}

TEST(Llava, WrongFieldsAreNamed) {
  const auto message = [](const std::string& vision, const std::string& extra) {
    try {
      load(vision, extra);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message(kClip, R"("vision_feature_layer": 7, )").find("vision_feature_layer"), std::string::npos);
  EXPECT_NE(
      message(kClip, R"("vision_feature_select_strategy": "cls", )").find("vision_feature_select_strategy"),
      std::string::npos);
  EXPECT_NE(message(R"("model_type": "dinov2")", "").find("dinov2"), std::string::npos);
  EXPECT_NE(message(kClip, R"("projector_hidden_act": "mish", )").find("projector_hidden_act"),
            std::string::npos);
}

// Published towers end before the last layer of their configuration where a feature layer makes the rest
// superfluous; the reference does not miss it.
TEST(Llava, LayersOfTheTowerThatNobodyReadsMayBeMissing) {
  const auto golden = test::source_dir() / "tests/data/golden/llava";  // four layers, feature layer -2
  const auto without = [](const std::string& layer) {
    return [layer](Json&, WeightTable& weights) {
      EXPECT_GT(weights.erase_if([&](const WeightEntry& entry) {
        return entry.name.starts_with("vision_tower.vision_model.encoder.layers." + layer + ".");
      }),
                0U);
    };
  };
  const auto features = [&](test::GoldenModel& model, ExecObserver* observer) {
    const std::vector<MediaItem> items = model.read_media(golden, model.cases(golden).front(), {});
    Arena arena;
    ExecContext cx(model.backend(), arena, observer);
    const Tensor rows = Tensor::copy_of(model.model().encode_media(cx, items));
    return std::vector<float>(rows.f32(), rows.f32() + rows.view().numel());
  };
  test::GoldenModel whole(golden);
  test::GoldenModel shorter(golden, without("3"));
  EXPECT_EQ(features(shorter, nullptr), features(whole, nullptr));
  test::TapCopies taps;
  EXPECT_EQ(features(shorter, &taps), features(whole, nullptr));
  EXPECT_EQ(taps.taps.count("model.vision_tower.encoder.layers.2"), 1U);
  EXPECT_EQ(taps.taps.count("model.vision_tower.encoder.layers.3"), 0U);
  EXPECT_EQ(taps.taps.count("model.vision_tower.post_layernorm"), 0U);  // it is the last layer's
  try {
    test::GoldenModel broken(golden, without("2"));
    FAIL() << "a layer that is read is missing";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("encoder.layers.2.layer_norm1.weight"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace triptych
