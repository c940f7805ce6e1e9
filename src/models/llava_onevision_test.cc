// LLaVA-OneVision by arithmetic alone, and variants of the small checkpoint with reference values.
#include <gmock/gmock.h>

#include <cmath>

#include "models/testing/golden_run.h"
#include "models/testing/tiny_models.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using test::Geometry;
using test::GoldenModel;
using test::TinyModel;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::filesystem::path kGolden = test::source_dir() / "tests/data/golden/llava_onevision";

MediaMeta video_of(int width, int height, int n_frames) {
  MediaMeta out;
  out.width_px = width;
  out.height_px = height;
  out.n_frames = n_frames;
  out.is_video = true;
  return out;
}

// Rows of the pictures or frames of a case.
std::vector<float> features_of(GoldenModel& model, const std::string& name) {
  for (const Json& one : model.cases(kGolden)) {
    if (one.at("name") != name) continue;
    const std::vector<MediaItem> items = model.read_media(kGolden, one, {});
    Arena arena;
    ExecContext cx(model.backend(), arena);
    const Tensor rows = Tensor::copy_of(model.model().encode_media(cx, items));
    return {rows.f32(), rows.f32() + rows.view().numel()};
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

TEST(LlavaOnevision, PublishedTokenCounts) {
  const TinyModel model("llava_onevision", Geometry::kPublished);
  const auto tokens = [&](int width, int height) {
    return model->plan_media({.width_px = width, .height_px = height}, {}).n_tokens;
  };
  EXPECT_EQ(tokens(384, 384), 729 + 27 * 28);
  EXPECT_EQ(tokens(768, 768), 729 + 54 * 55);
  EXPECT_EQ(tokens(1152, 1152), 729 + 81 * 82);
  // 4 x 4 tiles are 1.33 times as wide as the cap, and 108 // (108 / 81) is 81; 5 x 5: 135 // (135 / 81) is
  // 80, because 135 / 81 is rounded up.
  EXPECT_EQ(tokens(1536, 1536), 729 + 81 * 82);
  EXPECT_EQ(tokens(1920, 1920), 729 + 80 * 81);
  EXPECT_EQ(model->plan_media(video_of(1920, 1080, 32), {}).n_tokens, 32 * 196 + 1);
  EXPECT_EQ(model->plan_media(video_of(10, 3000, 1), {}).n_tokens, 197);
}

// More frames than go through the tower at once, of a size of their own.
TEST(LlavaOnevision, LongVideosGiveTheRowsThatWerePlanned) {
  TinyModel model("llava_onevision", Geometry::kSmall);
  constexpr int kFrames = 37;
  std::vector<Image> frames;
  for (int i = 0; i < kFrames; ++i)
    frames.push_back({.width_px = 50,
                      .height_px = 40,
                      .rgb = PoolVector<std::uint8_t>(50 * 40 * 3, static_cast<std::uint8_t>(i))});
  MediaItem item;
  item.plan = model->plan_media(video_of(50, 40, kFrames), {});
  item.pixels = model->preprocess(frames, item.plan, nullptr);
  Arena arena;
  ExecContext cx(model.backend(), arena);
  const Tensor all = Tensor::copy_of(model->encode_media(cx, {&item, 1}));
  ASSERT_EQ(all.shape().dim(0), kFrames * 1 + 1);
  // Each frame's row is that of the frame alone.
  for (const int frame : {0, 15, 16, 36}) {
    MediaItem one;
    one.plan = model->plan_media(video_of(50, 40, 1), {});
    one.pixels = model->preprocess({&frames[static_cast<std::size_t>(frame)], 1}, one.plan, nullptr);
    arena.reset();
    const TensorView alone = model->encode_media(cx, {&one, 1});
    for (std::int64_t i = 0; i < alone.dim(1); ++i)
      EXPECT_NEAR(alone.row(0).cf32()[i], all.view().row(frame).cf32()[i], 1e-4F) << frame;
  }
}

TEST(LlavaOnevision, PicturesAndVideosGoToTheirOwnPlaceholders) {
  const TinyModel model("llava_onevision", Geometry::kPublished);
  const MediaPlan picture = model->plan_media({.width_px = 384, .height_px = 384}, {});
  const MediaPlan video = model->plan_media(video_of(64, 48, 2), {});
  const MediaPlan plans[] = {video, picture};
  const std::int32_t ids[] = {1, 9, 2, 10, 3};  // <image> is 9, <video> 10
  const PromptLayout layout = model->expand_prompt(ids, plans);
  ASSERT_EQ(layout.runs.size(), 2U);
  EXPECT_EQ(layout.runs[0].media_index, 1);
  EXPECT_EQ(layout.runs[0].n_rows, picture.n_tokens);
  EXPECT_EQ(layout.runs[1].media_index, 0);
  EXPECT_EQ(layout.runs[1].n_rows, 2 * 196 + 1);
  EXPECT_EQ(layout.runs[1].first_prompt_row, 1 + picture.n_tokens + 1);
  EXPECT_EQ(layout.input_ids[static_cast<std::size_t>(layout.runs[1].first_prompt_row)], 10);
  EXPECT_EQ(layout.next_position, static_cast<std::int32_t>(layout.input_ids.size()));
  const auto why = [&](std::span<const MediaPlan> given) {
    try {
      model->expand_prompt(ids, given);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("expanded");
  };
  EXPECT_EQ(why({plans, 1}), "the prompt has 1 image placeholder but 0 images were given");
  EXPECT_EQ(why({plans + 1, 1}), "the prompt has 1 video placeholder but 0 videos were given");
}

// What tools of the time and newer ones call the tensors.
TEST(LlavaOnevision, NewerTensorNames) {
  GoldenModel as_stored(kGolden);
  GoldenModel renamed(kGolden, [](Json&, WeightTable& weights) {
    weights.rename_all([](const std::string& name) {
      for (const auto& [from, to] :
           {std::pair<std::string, std::string>{"language_model.model.", "model.language_model."},
            {"vision_tower.vision_model.", "model.vision_tower."},
            {"multi_modal_projector.", "model.multi_modal_projector."},
            {"image_newline", "model.image_newline"}})
        if (name.starts_with(from)) return to + name.substr(from.size());
      return name;
    });
  });
  for (const char* name : {"capped_image", "video"})
    EXPECT_EQ(features_of(renamed, name), features_of(as_stored, name)) << name;
}

TEST(LlavaOnevision, TheCapComesFromTheConfiguration) {
  const auto tokens = [](const char* ratio) {
    auto files = test::tiny_files("llava_onevision", Geometry::kSmall);
    files.config["vision_aspect_ratio"] = ratio;
    const TinyModel model(std::move(files));
    return model->plan_media({.width_px = 84, .height_px = 84}, {}).n_tokens;
  };
  // 3 x 3 tiles of 2 x 2 places; scaled to two views' 8 places: 6 // sqrt(36 / 8) is 2.
  EXPECT_EQ(tokens("anyres_max_9"), 4 + 6 * 7);
  EXPECT_EQ(tokens("anyres_max_100"), 4 + 6 * 7);
  EXPECT_EQ(tokens("anyres_max_2"), 4 + 2 * 3);
  // The processor counts by its own copy.
  try {
    GoldenModel model(kGolden, [](Json& c, WeightTable&) { c["vision_aspect_ratio"] = "anyres_max_9"; });
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("processor_config.json"), HasSubstr("\"anyres_max_2\""),
                                    HasSubstr("\"anyres_max_9\"")));
  }
}

TEST(LlavaOnevision, WrongFieldsAreNamed) {
  const auto message = [](const std::function<void(Json&)>& change) {
    auto files = test::tiny_files("llava_onevision", Geometry::kSmall);
    change(files.config);
    try {
      TinyModel model(std::move(files));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("loaded");
  };
  for (const char* ratio : {"anyres", "pad", "anyres_max_", "anyres_max_0", "anyres_max_9x", "anyres_max_-1"})
    EXPECT_THAT(message([&](Json& c) { c["vision_aspect_ratio"] = ratio; }),
                AllOf(HasSubstr("vision_aspect_ratio"), HasSubstr(fmt::format("\"{}\"", ratio))));
  EXPECT_THAT(message([](Json& c) { c["vision_feature_select_strategy"] = "default"; }),
              HasSubstr("vision_feature_select_strategy"));
  EXPECT_THAT(message([](Json& c) {
                c["image_grid_pinpoints"] = {{28, 30}};
              }),
              HasSubstr("image_grid_pinpoints"));
  EXPECT_THAT(message([](Json& c) { c["text_config"]["model_type"] = "gemma"; }), HasSubstr("gemma"));
  EXPECT_EQ(message([](Json& c) { c["vision_aspect_ratio"] = "anyres_max_9"; }), "loaded");
}

}  // namespace
}  // namespace triptych
