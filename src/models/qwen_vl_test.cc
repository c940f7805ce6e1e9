// Qwen-VL against the reference's values, and what its configuration must refuse.
#include <gmock/gmock.h>

#include <numeric>
#include <optional>

#include <nlohmann/json.hpp>

#include "models/testing/golden_run.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using test::GoldenModel;
using test::relative_error;
using ::testing::HasSubstr;

const std::filesystem::path kGolden = test::source_dir() / "tests/data/golden/qwen_vl";

constexpr std::int32_t kImageStart = 650, kImageEnd = 651, kImagePad = 652;
constexpr std::int64_t kPlaces = 256;

Json case_named(const GoldenModel& model, const std::string& name) {
  for (const Json& one : model.cases(kGolden))
    if (one.at("name") == name) return one;
  throw std::runtime_error("no case " + name);
}

std::vector<MediaItem> read_pictures(const GoldenModel& model, const Json& one) {
  std::vector<MediaItem> out;
  for (const Json& part : one.at("parts")) {
    const auto name = part.get<std::string>();
    if (!name.ends_with(".png")) continue;
    const Image image = decode_image(MappedFile::open(kGolden / name)->bytes(), {}, name);
    MediaItem item;
    item.plan = model.model().plan_media(
        {.width_px = image.width_px, .height_px = image.height_px, .name = name}, {});
    item.pixels = model.model().preprocess({&image, 1}, item.plan, nullptr);
    out.push_back(std::move(item));
  }
  return out;
}

/// The ids as a tokenizer gives them: one <imgpad> between <img> and </img>.
std::vector<std::int32_t> with_single_places(const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    out.push_back(ids[i]);
    if (ids[i] != kImageStart) continue;
    out.push_back(kImagePad);
    i += static_cast<std::size_t>(kPlaces);
  }
  return out;
}

PromptLayout layout_of(const GoldenModel& model, const Json& one, const std::vector<MediaItem>& items) {
  std::vector<MediaPlan> plans;
  for (const MediaItem& item : items) plans.push_back(item.plan);
  return model.model().expand_prompt(with_single_places(one.at("input_ids").get<std::vector<std::int32_t>>()),
                                     plans);
}

/// Logits of the prompt's last row and of each step when the reference's own tokens are fed.
std::vector<std::vector<float>> logits_of_steps(GoldenModel& model, const Json& one,
                                                ExecObserver* observer = nullptr) {
  const std::vector<MediaItem> items = read_pictures(model, one);
  const PromptLayout layout = layout_of(model, one, items);
  const std::vector<float> prompt = model.forward_prompt(layout, items, observer);
  std::vector<std::vector<float>> out{{prompt.end() - model.model().info().vocab_size, prompt.end()}};
  const auto ids = one.at("generated_ids").get<std::vector<std::int32_t>>();
  for (std::size_t i = 0; i < ids.size(); ++i)
    out.push_back(model.forward_next(ids[i], layout.next_position + static_cast<std::int32_t>(i)));
  return out;
}

WeightTable reference_of(const Json& one) {
  return read_safetensors(kGolden / (one.at("name").get<std::string>() + ".safetensors"));
}

/// Largest error of a step's logits, relative to the reference's largest.
double worst_step(const std::vector<std::vector<float>>& steps, const WeightTable& reference) {
  const TensorView expected = reference.at("step_logits").view;
  EXPECT_EQ(expected.dim(0), static_cast<std::int64_t>(steps.size()));
  double out = 0;
  for (std::int64_t i = 0; i < expected.dim(0); ++i)
    out = std::max(out, relative_error(steps[static_cast<std::size_t>(i)], expected.row(i)));
  return out;
}

TEST(QwenVl, TowerPromptAndStepsOfTwoPictures) {
  GoldenModel model(kGolden);
  const Json one = case_named(model, "two_images");
  const WeightTable reference = reference_of(one);
  test::TapCopies taps;
  const auto steps = logits_of_steps(model, one, &taps);
  ASSERT_EQ(steps.size(), 17U);
  EXPECT_LT(relative_error(taps.taps.at("vision.output"), reference.at("tap.vision.output").view), 1e-5);
  EXPECT_LT(worst_step(steps, reference), 1e-5);
  const auto ids = one.at("generated_ids").get<std::vector<std::int32_t>>();
  for (std::size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(std::max_element(steps[i].begin(), steps[i].end()) - steps[i].begin(), ids[i]) << "step " << i;
}

TEST(QwenVl, TextAlone) {
  GoldenModel model(kGolden);
  const Json one = case_named(model, "text_only");
  EXPECT_LT(worst_step(logits_of_steps(model, one), reference_of(one)), 1e-5);
}

// The prompt of two pictures is longer than the model's seq_length of 320, the other shorter: only there may
// the larger rotary base and the scaled queries change anything.
TEST(QwenVl, LengthScalingsBeginBehindTheTrainedLength) {
  for (const char* field : {"use_dynamic_ntk", "use_logn_attn"}) {
    GoldenModel without(kGolden, [&](Json& config, WeightTable&) { config[field] = false; });
    const Json longer = case_named(without, "two_images");
    EXPECT_GT(worst_step(logits_of_steps(without, longer), reference_of(longer)), 1e-3) << field;
    const Json shorter = case_named(without, "text_only");
    EXPECT_LT(worst_step(logits_of_steps(without, shorter), reference_of(shorter)), 1e-5) << field;
  }
}

TEST(QwenVl, EveryPictureTakesAsManyPlaces) {
  const GoldenModel model(kGolden);
  for (const auto& [w, h] : {std::pair{1, 1}, {448, 448}, {1, 4000}, {4000, 3}}) {
    const MediaPlan plan = model.model().plan_media({.width_px = w, .height_px = h}, {});
    EXPECT_EQ(plan.resized_width_px, 448);
    EXPECT_EQ(plan.resized_height_px, 448);
    EXPECT_EQ(plan.n_tokens, kPlaces);
    EXPECT_EQ(plan.n_prompt_tokens, kPlaces);
  }
}

TEST(QwenVl, PlacesHoldTheBytesOfTheNameAndThenPadding) {
  const GoldenModel model(kGolden);
  const Json one = case_named(model, "two_images");
  const PromptLayout layout = layout_of(model, one, read_pictures(model, one));
  EXPECT_EQ(layout.input_ids, one.at("input_ids").get<std::vector<std::int32_t>>());
  ASSERT_EQ(layout.runs.size(), 2U);
  for (const MediaRun& run : layout.runs) EXPECT_EQ(run.n_rows, kPlaces);
  std::vector<std::int32_t> positions(layout.input_ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  EXPECT_EQ(layout.positions, positions);

  // A name that does not fit is cut: two places stay padding, as in the reference.
  const MediaPlan plan =
      model.model().plan_media({.width_px = 9, .height_px = 9, .name = std::string(300, 'x')}, {});
  const std::int32_t ids[] = {kImageStart, kImagePad, kImageEnd};
  const PromptLayout cut = model.model().expand_prompt(ids, {&plan, 1});
  ASSERT_EQ(cut.input_ids.size(), 258U);
  EXPECT_EQ(std::count(cut.input_ids.begin(), cut.input_ids.end(), 'x'), 254);
  EXPECT_EQ(cut.input_ids[255], kImagePad);
  EXPECT_EQ(cut.input_ids[256], kImagePad);
  EXPECT_EQ(cut.input_ids[257], kImageEnd);
}

/// How loading a changed checkpoint failed.
std::optional<Error> refusal(const GoldenModel::Change& change) {
  try {
    const GoldenModel model(kGolden, change);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

TEST(QwenVl, WrongFieldsAreNamed) {
  struct Case {
    const char* field;
    Json value;
    ErrorCode code;
  };
  for (const Case& one : {Case{"rotary_pct", 0.5, ErrorCode::kUnsupported},
                          Case{"scale_attn_weights", false, ErrorCode::kUnsupported},
                          Case{"tie_word_embeddings", true, ErrorCode::kUnsupported},
                          Case{"intermediate_size", 383, ErrorCode::kInvalidFile},
                          Case{"num_attention_heads", 3, ErrorCode::kInvalidFile},
                          Case{"seq_length", 0, ErrorCode::kInvalidFile}}) {
    const auto error = refusal([&](Json& config, WeightTable&) { config[one.field] = one.value; });
    ASSERT_TRUE(error.has_value()) << one.field;
    EXPECT_EQ(error->code(), one.code) << one.field;
    EXPECT_THAT(error->what(), HasSubstr(one.field));
  }
}

TEST(QwenVl, MissingTensorsAreNamed) {
  for (const char* name :
       {"lm_head.weight", "transformer.h.1.mlp.w2.weight", "transformer.visual.attn_pool.query",
        "transformer.visual.transformer.resblocks.2.attn.in_proj.bias"}) {
    const auto error = refusal([&](Json&, WeightTable& weights) { weights.erase(name); });
    ASSERT_TRUE(error.has_value()) << name;
    EXPECT_EQ(error->code(), ErrorCode::kNotFound) << name;
    EXPECT_THAT(error->what(), HasSubstr(name));
  }
}

// Checkpoints were also written without the biases of c_attn; they load, and are another model.
TEST(QwenVl, BiasesOfQueriesKeysAndValuesCount) {
  GoldenModel without(kGolden, [](Json&, WeightTable& weights) {
    for (int i = 0; i < 3; ++i) weights.erase(fmt::format("transformer.h.{}.attn.c_attn.bias", i));
  });
  const Json one = case_named(without, "text_only");
  EXPECT_GT(worst_step(logits_of_steps(without, one), reference_of(one)), 1e-3);
}

}  // namespace
}  // namespace triptych
