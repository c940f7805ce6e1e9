// Qwen2-VL against the reference implementation's values, and what its configuration and prompts must refuse.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "models/testing/golden_run.h"
#include "support/shared_dir.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using test::case_named;
using test::GoldenModel;
using test::run_cases;
using test::why_refused;
using ::testing::HasSubstr;

const std::filesystem::path kOwnGolden = test::source_dir() / "tests/data/golden/qwen2_vl";

TEST(Qwen2Vl, ReferenceValues) {
  GoldenModel model(kOwnGolden);
  run_cases(model, kOwnGolden, 2, false);
}

TEST(Qwen2Vl, SharedReferenceValues) {
  TRIPTYCH_SHARED_OR_SKIP(directory, "golden/models/qwen2_vl");
  GoldenModel model(directory);
  run_cases(model, directory, 7, true);
}

TEST(Qwen2Vl, TrainedModel) {
  TRIPTYCH_SHARED_OR_SKIP(directory, "golden/trained/qwen2_vl");
  GoldenModel model(directory);
  run_cases(model, directory / "golden", 4, true);
}

// As newer tools write tensor names: one level more for everything but the head.
TEST(Qwen2Vl, NewerTensorNames) {
  GoldenModel model(kOwnGolden, [](Json&, WeightTable& weights) {
    weights.rename_all([](const std::string& name) {
      if (name.starts_with("visual.")) return "model." + name;
      if (name.starts_with("model.")) return "model.language_model." + name.substr(6);
      return name;
    });
  });
  model.run(kOwnGolden, case_named(model, kOwnGolden, "one_image"));
}

// As published: the language model's fields at the top, rope_scaling in its older form.
TEST(Qwen2Vl, FlatConfiguration) {
  GoldenModel model(kOwnGolden, [](Json& config, WeightTable&) {
    Json text = config.at("text_config");
    config.erase("text_config");
    const Json rope = text.at("rope_parameters");
    text.erase("rope_parameters");
    text.erase("model_type");
    text["rope_theta"] = rope.at("rope_theta");
    text["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", rope.at("mrope_section")}};
    text.update(Json(config));
    config = text;
    config["vision_config"]["in_chans"] = 3;
    config["vision_config"].erase("in_channels");
    config["vision_config"]["model_type"] = "qwen2_vl";
  });
  model.run(kOwnGolden, case_named(model, kOwnGolden, "one_image"));
}

// The flag says tied, the file holds another head: the stored one is used, as the reference does.
TEST(Qwen2Vl, StoredHeadWinsOverTheFlag) {
  GoldenModel model(kOwnGolden, [](Json& config, WeightTable&) {
    config["tie_word_embeddings"] = true;
    config["text_config"]["tie_word_embeddings"] = true;
  });
  model.run(kOwnGolden, case_named(model, kOwnGolden, "one_image"));
}

TEST(Qwen2Vl, MissingHeadIsRefused) {
  const std::string why =
      why_refused(kOwnGolden, [](Json&, WeightTable& weights) { weights.erase("lm_head.weight"); });
  EXPECT_THAT(why, HasSubstr("lm_head.weight"));
  EXPECT_THAT(why, HasSubstr("tie_word_embeddings"));
}

TEST(Qwen2Vl, WrongCheckpointsAreRefused) {
  EXPECT_THAT(why_refused(kOwnGolden, [](Json&, WeightTable& w) { w.erase("visual.blocks.1.norm2.bias"); }),
              HasSubstr("visual.blocks.1.norm2.bias"));
  EXPECT_THAT(why_refused(kOwnGolden, [](Json& c, WeightTable&) { c["vision_config"]["depth"] = 2; }),
              HasSubstr("visual.blocks.2."));
  EXPECT_THAT(why_refused(kOwnGolden, [](Json& c, WeightTable&) { c["vision_config"]["embed_dim"] = 84; }),
              HasSubstr("shape"));
  EXPECT_THAT(why_refused(kOwnGolden, [](Json& c, WeightTable&) { c["vision_config"]["hidden_size"] = 64; }),
              HasSubstr("vision_config.hidden_size"));
  EXPECT_THAT(why_refused(kOwnGolden, [](Json& c, WeightTable&) { c["vision_config"]["patch_size"] = 16; }),
              HasSubstr("patch_size"));
  EXPECT_THAT(why_refused(kOwnGolden, [](Json& c, WeightTable&) { c["vision_config"]["mlp_ratio"] = -1; }),
              HasSubstr("mlp_ratio"));
  EXPECT_THAT(why_refused(kOwnGolden, [](Json& c, WeightTable&) { c.erase("vision_config"); }),
              HasSubstr("vision_config"));
}

// Pictures encoded together, one by one and in another order give the same rows.
TEST(Qwen2Vl, PicturesDoNotSeeEachOther) {
  GoldenModel model(kOwnGolden);
  std::vector<MediaItem> items;
  for (const auto& [w, h] : {std::pair{90, 90}, std::pair{131, 77}, std::pair{40, 200}}) {
    Image image{w, h, PoolVector<std::uint8_t>(static_cast<std::size_t>(w * h * 3))};
    for (std::size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<std::uint8_t>(i * i % 251);
    MediaItem item;
    item.plan = model.model().plan_media({.width_px = w, .height_px = h}, {});
    item.pixels = model.model().preprocess({&image, 1}, item.plan, nullptr);
    items.push_back(std::move(item));
  }
  Arena arena;
  ExecContext cx(model.backend(), arena);
  const Tensor together = Tensor::copy_of(model.model().encode_media(cx, items));
  std::int64_t row = 0;
  for (const MediaItem& item : items) {
    arena.reset();
    const Tensor alone = Tensor::copy_of(model.model().encode_media(cx, {&item, 1}));
    const std::int64_t n = alone.view().numel();
    ASSERT_EQ(alone.view().dim(0), item.plan.n_tokens);
    const float* from = together.view().row(row).cf32();
    for (std::int64_t i = 0; i < n; ++i) ASSERT_NEAR(from[i], alone.f32()[i], 1e-5F);
    row += item.plan.n_tokens;
  }
  EXPECT_EQ(row, together.view().dim(0));
}

TEST(Qwen2Vl, AWarmEncoderAllocatesNothing) {
  GoldenModel model(kOwnGolden);
  const std::vector<MediaItem> items =
      model.read_media(kOwnGolden, case_named(model, kOwnGolden, "video"), {});
  Arena arena;
  ExecContext cx(model.backend(), arena);
  model.model().encode_media(cx, items);
  arena.reset();
  const std::int64_t before = arena.n_chunk_allocations();
  model.model().encode_media(cx, items);
  EXPECT_EQ(arena.n_chunk_allocations(), before);
}

}  // namespace
}  // namespace triptych
