#include "engine/self_draft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/engine.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "models/testing/tiny_models.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SelfDraft read(std::string_view json, int n_layers) {
  const Json config = parse_json(json, "config.json");
  return read_self_draft(JsonView(config, "config.json"), n_layers);
}

std::string error_of(std::string_view json, int n_layers) {
  try {
    read(json, n_layers);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    return error.what();
  }
  return "";
}

TEST(SelfDraft, IsReadFromTheConfiguration) {
  EXPECT_THAT(read("{}", 8).skipped_layers, ElementsAre());
  const SelfDraft stored = read(R"({"self_draft": {"skipped_layers": [5, 2], "acceptance": 0.75}})", 8);
  EXPECT_THAT(stored.skipped_layers, ElementsAre(2, 5));
  EXPECT_DOUBLE_EQ(stored.acceptance, 0.75);
  const Json again = {{"self_draft", to_json(stored)}};
  EXPECT_EQ(read(again.dump(), 8).skipped_layers, stored.skipped_layers);
}

TEST(SelfDraft, ModelsTrainedWithLayerDropUseTheirs) {
  // Every floor(1 / 0.25)-th layer, but neither the first nor the last.
  EXPECT_THAT(read(R"({"text_config": {"layerdrop": 0.25}})", 13).skipped_layers, ElementsAre(4, 8));
  EXPECT_THAT(read(R"({"layerdrop": 0.5})", 6).skipped_layers, ElementsAre(2, 4));
  EXPECT_THAT(read(R"({"layerdrop": 0.0})", 6).skipped_layers, ElementsAre());
  EXPECT_THAT(read(R"({"layerdrop": 1e-300})", 6).skipped_layers, ElementsAre());
  EXPECT_THAT(read(R"({"layerdrop": 0.9})", 6).skipped_layers, ElementsAre(2, 4));
  // What was found on pictures goes before.
  EXPECT_THAT(read(R"({"layerdrop": 0.5, "self_draft": {"skipped_layers": [3]}})", 6).skipped_layers,
              ElementsAre(3));
}

TEST(SelfDraft, FilesAreChecked) {
  EXPECT_THAT(error_of(R"({"self_draft": {"skipped_layers": [8]}})", 8),
              HasSubstr("self_draft.skipped_layers"));
  EXPECT_THAT(error_of(R"({"self_draft": {"skipped_layers": [2, 2]}})", 8),
              HasSubstr("layer 2 is named twice"));
  EXPECT_THAT(error_of(R"({"self_draft": {"skipped_layers": [0, 1]}})", 2), HasSubstr("1 to 1 of 2 layers"));
  EXPECT_THAT(error_of(R"({"self_draft": {"skipped_layers": "all"}})", 8), HasSubstr("skipped_layers"));
  EXPECT_THAT(error_of(R"({"self_draft": {}})", 8), HasSubstr("skipped_layers"));
  EXPECT_THAT(error_of(R"({"layerdrop": 1.0})", 8), HasSubstr("layerdrop"));
}

TEST(SelfDraft, ExpectedSpeedFollowsAcceptanceAndCost) {
  EXPECT_DOUBLE_EQ(expected_speedup(0, 0.5, 8), 1);
  EXPECT_GT(expected_speedup(0.9, 0.35, 8), 1.4);
  EXPECT_LT(expected_speedup(0.5, 0.5, 8), 1.05);
  EXPECT_GT(expected_speedup(0.9, 0.35, 8), expected_speedup(0.9, 0.5, 8));
}

// Every family leaves out what it is told to: a model without its layers is another.
TEST(SelfDraft, FamiliesLeaveOutLayers) {
  for (const std::string_view family : test::kFamilies) {
    Json config = test::tiny_files(family, test::Geometry::kSmall).config;
    (config.contains("text_config") ? config["text_config"] : config)["num_hidden_layers"] = 4;
    const auto model =
        LoadedModel::with_random_weights(config, DType::kF32, {.n_threads = 1, .batch_invariant = true});
    Engine engine(*model, {.max_context_tokens = 64, .kv_cache_dtype = KvDType::kF32});
    PreparedRequest request;
    request.token_ids = {1, 2, 3, 4, 5};
    request.layout = model->model().expand_prompt(request.token_ids, {});
    engine.forward_prompt(request, nullptr);
    const auto copy = [](const TensorView& logits) {
      return std::vector<float>(logits.cf32(), logits.cf32() + logits.numel());
    };
    const std::int32_t next[] = {6, 7};
    const std::int32_t middle[] = {1, 2};
    const std::int32_t last[] = {3};
    const auto without_middle = copy(engine.forward_draft(next, middle));
    const auto without_last = copy(engine.forward_draft(next, last));
    EXPECT_EQ(copy(engine.forward_draft(next, middle)), without_middle) << family;
    const auto whole = copy(engine.forward_next(next, nullptr));
    EXPECT_EQ(whole.size(), without_middle.size()) << family;
    EXPECT_NE(whole, without_middle) << family;
    EXPECT_NE(whole, without_last) << family;
    EXPECT_NE(without_last, without_middle) << family;
    // Drafts leave nothing behind.
    Engine fresh(*model, {.max_context_tokens = 64, .kv_cache_dtype = KvDType::kF32});
    fresh.forward_prompt(request, nullptr);
    EXPECT_EQ(copy(fresh.forward_next(next, nullptr)), whole) << family;
  }
}

TEST(SelfDraft, IsFoundWhereALayerDoesLittle) {
  const auto model = LoadedModel::open(test::source_path("assets/models/scenes-llava"), {.n_threads = 2});
  std::vector<MediaInput> pictures;
  for (const char* name : {"0000.png", "0001.png", "0002.png"}) {
    const auto file = MappedFile::open(test::source_path("assets/eval/scenes/") + name);
    pictures.push_back(
        {.frames = {decode_image(file->bytes(), {}, name)}, .is_video = false, .frames_per_s = 0});
  }
  std::int64_t n_calls = 0;
  const SelfDraft found =
      find_self_draft(*model, pictures, {}, [&](std::int64_t n_done, std::int64_t n_passes) {
        ++n_calls;
        EXPECT_LT(n_done, n_passes);
      });
  EXPECT_GE(n_calls, 2);
  // The first and the last stay; whatever is left out was right often enough to gain.
  for (const std::int32_t layer : found.skipped_layers) EXPECT_TRUE(layer > 0 && layer < 3) << layer;
  EXPECT_EQ(found.skipped_layers.empty(), found.acceptance == 0);
  EXPECT_THROW(find_self_draft(*model, {}), Error);
}

}  // namespace
}  // namespace triptych
