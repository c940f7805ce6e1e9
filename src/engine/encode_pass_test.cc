// A pass through the tower that is left at every occasion gives the bits of one that is not, for every
// family; nothing of it is padding, and it can be dropped anywhere.
#include "engine/encode_pass.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "backend/memory.h"
#include "engine/load.h"
#include "models/testing/tiny_models.h"
#include "tensor/quant_format.h"

namespace triptych {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::string_view family;
  const char* weights;
  bool batch_invariant = false;
};

std::unique_ptr<LoadedModel> make_model(const Case& one) {
  LoadOptions options;
  options.n_threads = 2;
  options.batch_invariant = one.batch_invariant;
  if (*one.weights != 0)
    options.weight_formats.language = options.weight_formats.vision = QuantFormat::parse(one.weights);
  return LoadedModel::with_random_weights(test::tiny_files(one.family, test::Geometry::kPublished).config,
                                          DType::kBF16, options);
}

// Pictures of three sizes.
std::vector<MediaItem> pictures(const LoadedModel& model) {
  std::vector<MediaItem> out;
  for (const auto& [width, height] : {std::pair{340, 420}, {60, 56}, {420, 200}}) {
    Image image{
        width, height,
        PoolVector<std::uint8_t>(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3)};
    for (std::size_t i = 0; i < image.rgb.size(); ++i)
      image.rgb[i] = static_cast<std::uint8_t>(i * 37 / (out.size() + 3));
    MediaItem item;
    item.plan = model.model().plan_media({.width_px = width, .height_px = height}, {});
    item.pixels = model.model().preprocess({&image, 1}, item.plan, nullptr);
    if (!model.info().media_text_tokenizer.empty()) item.text_ids = {3, 1, 2};
    out.push_back(std::move(item));
  }
  return out;
}

// A millisecond passes between any two looks.
ClockMs ticking() {
  return [now = 0.0]() mutable { return now += 1; };
}

class EncodePassOf : public testing::TestWithParam<Case> {};

TEST_P(EncodePassOf, PiecesGiveTheBitsOfTheWhole) {
  const auto model = make_model(GetParam());
  const std::atomic<bool> never = false;
  Arena whole_arena = make_arena(model->backend());
  EncodePass whole(model->model(), model->backend(), whole_arena, pictures(*model), nullptr, ticking());
  ASSERT_TRUE(whole.run(kInfinity, never));
  EXPECT_EQ(whole.n_stretches(), 1);

  Arena arena = make_arena(model->backend());
  EncodePass cut(model->model(), model->backend(), arena, pictures(*model), nullptr, ticking());
  int n = 1;
  while (!cut.run(0.1, never)) ++n;
  EXPECT_EQ(cut.n_stretches(), n);
  EXPECT_GT(n, GetParam().family == "fuyu" ? 3 : 8) << "products, attentions and blocks";
  EXPECT_GT(cut.active_ms(), n);

  ASSERT_EQ(whole.rows().shape(), cut.rows().shape());
  const TensorView a = whole.rows();
  const TensorView b = cut.rows();
  for (std::int64_t i = 0; i < a.dim(0); ++i)
    ASSERT_EQ(std::memcmp(a.row(i).f32(), b.row(i).f32(), static_cast<std::size_t>(a.dim(1)) * sizeof(float)),
              0)
        << "row " << i;
  EXPECT_EQ(whole.n_padded_patches(), 0);
  EXPECT_EQ(cut.n_padded_patches(), 0);
}

TEST_P(EncodePassOf, CanBeDroppedAnywhere) {
  const auto model = make_model(GetParam());
  const std::atomic<bool> never = false;
  Arena arena = make_arena(model->backend());
  for (int n_runs = 0; n_runs < 12; n_runs += 3) {
    EncodePass pass(model->model(), model->backend(), arena, pictures(*model), nullptr, ticking());
    for (int i = 0; i < n_runs && !pass.run(0.1, never); ++i) {
    }
  }
  EncodePass last(model->model(), model->backend(), arena, pictures(*model), nullptr, ticking());
  EXPECT_TRUE(last.run(kInfinity, never));
}

TEST_P(EncodePassOf, AnInterruptEndsAStretch) {
  const auto model = make_model(GetParam());
  std::atomic<bool> interrupt = true;
  Arena arena = make_arena(model->backend());
  EncodePass pass(model->model(), model->backend(), arena, pictures(*model), nullptr, ticking());
  EXPECT_FALSE(pass.run(kInfinity, interrupt));
  EXPECT_FALSE(pass.run(kInfinity, interrupt));
  interrupt = false;
  EXPECT_TRUE(pass.run(kInfinity, interrupt));
}

INSTANTIATE_TEST_SUITE_P(Families, EncodePassOf, testing::ValuesIn([] {
                           std::vector<Case> out;
                           for (const std::string_view family : test::kFamilies) out.push_back({family, ""});
                           // 8-bit attention is chosen by the mean length of the segments of a call: where
                           // pictures differ in size,
                           // the same bits are promised by batch_invariant only.
                           out.push_back({"llava", "int8"});
                           for (const std::string_view family : {"qwen2_vl", "qwen2_5_vl"})
                             out.push_back({family, "int8", true});
                           return out;
                         }()),
                         [](const auto& one) {
                           return std::string(one.param.family) + (*one.param.weights != 0 ? "_int8" : "");
                         });

}  // namespace
}  // namespace triptych
