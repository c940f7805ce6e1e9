// Qwen2.5-VL against the reference implementation's values.
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

const std::filesystem::path kOwnGolden = test::source_dir() / "tests/data/golden/qwen2_5_vl";

// The reference made the video case with limits of its own, in which its frames need no resizing.
constexpr MediaOptions kVideoLimits{.min_pixels = 28 * 28 * 4, .max_pixels = 28 * 28 * 400};

TEST(Qwen25Vl, ReferenceValues) {
  GoldenModel model(kOwnGolden);
  run_cases(model, kOwnGolden, 2, false, kVideoLimits);
}

TEST(Qwen25Vl, SharedReferenceValues) {
  TRIPTYCH_SHARED_OR_SKIP(directory, "golden/models/qwen2_5_vl");
  GoldenModel model(directory);
  run_cases(model, directory, 7, true, kVideoLimits);
}

TEST(Qwen25Vl, TiedHeadIsStatedInTheTextConfigurationOnly) {
  GoldenModel model(kOwnGolden, [](Json& config, WeightTable&) { config.erase("tie_word_embeddings"); });
  model.run(kOwnGolden, case_named(model, kOwnGolden, "one_image"));
}

TEST(Qwen25Vl, TiedHeadThatIsStoredAsWell) {
  GoldenModel model(kOwnGolden, [](Json&, WeightTable& weights) {
    WeightEntry copy = weights.at("model.embed_tokens.weight");
    copy.name = "lm_head.weight";
    weights.add(std::move(copy));
  });
  model.run(kOwnGolden, case_named(model, kOwnGolden, "one_image"));
}

TEST(Qwen25Vl, UntiedWithoutAHeadIsRefused) {
  const std::string why = why_refused(kOwnGolden, [](Json& config, WeightTable&) {
    config["tie_word_embeddings"] = false;
    config["text_config"]["tie_word_embeddings"] = false;
  });
  EXPECT_THAT(why, HasSubstr("lm_head.weight"));
  EXPECT_THAT(why, HasSubstr("tie_word_embeddings"));
}

// Which blocks see the whole frame comes from the file, and it matters.
TEST(Qwen25Vl, FullAttentionBlocksComeFromTheConfiguration) {
  const auto features = [](const GoldenModel::Change& change) {
    GoldenModel model(kOwnGolden, change);
    const std::vector<MediaItem> items =
        model.read_media(kOwnGolden, case_named(model, kOwnGolden, "one_image"), {});
    Arena arena;
    ExecContext cx(model.backend(), arena);
    const Tensor rows = Tensor::copy_of(model.model().encode_media(cx, items));
    return std::vector<float>(rows.f32(), rows.f32() + rows.view().numel());
  };
  const auto apart = [](const std::vector<float>& a, const std::vector<float>& b) {
    float worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(a[i] - b.at(i)));
    return worst;
  };
  const auto as_stored = features({});
  const auto with = [&](const char* key, const Json& value) {
    return features([&](Json& config, WeightTable&) { config["vision_config"][key] = value; });
  };
  EXPECT_EQ(apart(with("fullatt_block_indexes", {3, 1, 40}), as_stored), 0.0F);
  EXPECT_GT(apart(with("fullatt_block_indexes", {0, 2}), as_stored), 1e-2F);
  // Numbers of no block mean none: the reference asks whether the running block's is in the list.
  EXPECT_EQ(apart(with("fullatt_block_indexes", {-1}), with("fullatt_block_indexes", Json::array())), 0.0F);
  EXPECT_GT(apart(with("window_size", 56), as_stored), 1e-2F);
  // A window as large as the picture is full attention.
  EXPECT_LT(apart(with("window_size", 2800), with("fullatt_block_indexes", {0, 1, 2, 3})), 1e-4F);
}

TEST(Qwen25Vl, WrongCheckpointsAreRefused) {
  EXPECT_THAT(
      why_refused(kOwnGolden, [](Json&, WeightTable& w) { w.erase("visual.blocks.1.mlp.up_proj.bias"); }),
      HasSubstr("visual.blocks.1.mlp.up_proj.bias"));
  EXPECT_THAT(
      why_refused(kOwnGolden, [](Json& c, WeightTable&) { c["vision_config"]["out_hidden_size"] = 64; }),
      HasSubstr("out_hidden_size"));
  EXPECT_THAT(why_refused(kOwnGolden, [](Json& c, WeightTable&) { c["vision_config"]["window_size"] = 13; }),
              HasSubstr("window_size"));
  EXPECT_THAT(why_refused(kOwnGolden,
                          [](Json& c, WeightTable&) { c["vision_config"]["fullatt_block_indexes"] = {0.5}; }),
              HasSubstr("fullatt_block_indexes"));
  EXPECT_THAT(
      why_refused(kOwnGolden, [](Json& c, WeightTable&) { c["vision_config"]["tokens_per_second"] = 0; }),
      HasSubstr("tokens_per_second"));
}

}  // namespace
}  // namespace triptych
