// Qwen3-VL against the reference implementation's values.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "models/testing/golden_run.h"
#include "models/testing/tiny_models.h"
#include "support/shared_dir.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using test::case_named;
using test::GoldenModel;
using test::run_cases;
using test::why_refused;
using ::testing::HasSubstr;

const std::filesystem::path kOwnGolden = test::source_dir() / "tests/data/golden/qwen3_vl";

// The directory is laid out as published checkpoints are.
TEST(Qwen3Vl, ReferenceValues) {
  GoldenModel model(kOwnGolden);
  run_cases(model, kOwnGolden, 2, false);
}

// And this one as newer tools write them.
TEST(Qwen3Vl, SharedReferenceValues) {
  TRIPTYCH_SHARED_OR_SKIP(directory, "golden/models/qwen3_vl");
  GoldenModel model(directory);
  run_cases(model, directory, 7, true);
}

TEST(Qwen3Vl, NewerConfigurationsAndOtherTensorNames) {
  GoldenModel model(kOwnGolden, [](Json& config, WeightTable& weights) {
    Json& text = config["text_config"];
    text["rope_parameters"] = text["rope_scaling"];
    text["rope_parameters"]["rope_theta"] = text["rope_theta"];
    text.erase("rope_scaling");
    text.erase("rope_theta");
    config.erase("tie_word_embeddings");
    config["vision_config"]["rope_parameters"] = {{"rope_type", "axial"}, {"rope_theta", 10000.0}};
    // One level less, as files saved from other versions have them.
    WeightTable renamed;
    for (const WeightEntry& entry : weights) {
      WeightEntry copy = entry;
      if (copy.name.starts_with("model.language_model.")) copy.name = "model." + copy.name.substr(21);
      if (copy.name.starts_with("model.visual.")) copy.name = copy.name.substr(6);
      renamed.add(std::move(copy));
    }
    weights = std::move(renamed);
  });
  model.run(kOwnGolden, case_named(model, kOwnGolden, "one_image"));
}

TEST(Qwen3Vl, WrongCheckpointsAreRefused) {
  EXPECT_THAT(why_refused(kOwnGolden,
                          [](Json&, WeightTable& w) {
                            w.erase("model.language_model.layers.1.self_attn.q_norm.weight");
                          }),
              HasSubstr("self_attn.q_norm.weight"));
  EXPECT_THAT(
      why_refused(kOwnGolden,
                  [](Json&, WeightTable& w) { w.erase("model.visual.deepstack_merger_list.1.norm.bias"); }),
      HasSubstr("deepstack_merger_list.1.norm.bias"));
  const auto vision = [](const char* key, const Json& value) {
    return why_refused(kOwnGolden, [&](Json& c, WeightTable&) { c["vision_config"][key] = value; });
  };
  EXPECT_THAT(vision("out_hidden_size", 64), HasSubstr("out_hidden_size"));
  EXPECT_THAT(vision("num_position_embeddings", 24), HasSubstr("expected a square number, got 24"));
  EXPECT_THAT(vision("num_position_embeddings", 36), HasSubstr("pos_embed.weight"));
  EXPECT_THAT(vision("deepstack_visual_indexes", {0, 4}), HasSubstr("deepstack_visual_indexes"));
  EXPECT_THAT(vision("deepstack_visual_indexes", {2, 0}), HasSubstr("deepstack_visual_indexes"));
  EXPECT_THAT(vision("deepstack_visual_indexes", {0, 1, 2, 3}), HasSubstr("deepstack_merger_list.2"));
  EXPECT_THAT(vision("deepstack_visual_indexes", nullptr), HasSubstr("default [8, 16, 24]"));
  EXPECT_THAT(vision("deepstack_visual_indexes", {0}), HasSubstr("deepstack_merger_list.1")) << "left over";
  const auto text = [](const char* key, const Json& value) {
    return why_refused(kOwnGolden, [&](Json& c, WeightTable&) { c["text_config"][key] = value; });
  };
  EXPECT_THAT(text("head_dim", 64), HasSubstr("mrope_section"));
  EXPECT_THAT(text("rope_scaling", {{"rope_type", "default"}}), HasSubstr("default [24, 20, 20]"));
}

// Which blocks are tapped, and that their rows arrive, matters.
TEST(Qwen3Vl, DeepStackComesFromTheConfiguration) {
  const auto logits = [](const GoldenModel::Change& change) {
    GoldenModel model(kOwnGolden, change);
    const Json one = case_named(model, kOwnGolden, "one_image");
    const std::vector<MediaItem> items = model.read_media(kOwnGolden, one, {});
    const PromptLayout layout = model.model().expand_prompt(
        model.collapse(one.at("input_ids").get<std::vector<std::int32_t>>()), {&items[0].plan, 1});
    return model.forward_prompt(layout, items, nullptr);
  };
  const auto as_stored = logits({});
  const auto moved = logits([](Json& config, WeightTable&) {
    config["vision_config"]["deepstack_visual_indexes"] = {1, 2};
  });
  float worst = 0;
  for (std::size_t i = 0; i < as_stored.size(); ++i)
    worst = std::max(worst, std::fabs(as_stored[i] - moved.at(i)));
  EXPECT_GT(worst, 1e-2F);
}

MediaPlan video(const Model& model, int n_frames, double frames_per_s, std::vector<double> times_s = {}) {
  return model.plan_media({.width_px = 64,
                           .height_px = 64,
                           .n_frames = n_frames,
                           .frames_per_s = frames_per_s,
                           .frame_times_s = std::move(times_s),
                           .is_video = true},
                          {});
}

TEST(Qwen3Vl, TheTimeStandsBeforeEveryPair) {
  const test::TinyModel model("qwen3_vl", test::Geometry::kSmall);
  const std::string pair = "<|vision_start|><|video_pad|><|vision_end|>";
  EXPECT_EQ(model->video_text(video(*model, 5, 2.0)),
            "<0.2 seconds>" + pair + "<1.2 seconds>" + pair + "<2.0 seconds>" + pair);
  EXPECT_EQ(model->video_text(video(*model, 1, 0)), "<0.0 seconds>" + pair);  // no rate: 2 a second
  EXPECT_EQ(model->video_text(video(*model, 3, 0)), "<0.2 seconds>" + pair + "<1.0 seconds>" + pair);
  EXPECT_EQ(model->video_text(video(*model, 4, 1.0, {0.0, 0.1, 7.0, 100.0})),
            "<0.1 seconds>" + pair + "<53.5 seconds>" + pair);
  EXPECT_THROW(model->video_text(video(*model, 2, -1.0)), Error);
}

TEST(Qwen3Vl, BoxesAreThousandths) {
  const test::TinyModel model("qwen3_vl", test::Geometry::kSmall);
  const MediaPlan plan = model->plan_media({.width_px = 400, .height_px = 200}, {});
  const auto found =
      model->find_regions(R"([{"bbox_2d": [100, 200, 500, 1000], "label": "a"}])", {}, {&plan, 1});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].points_px, (std::vector<PointPx>{{40, 40}, {200, 200}}));
}

}  // namespace
}  // namespace triptych
