// Pictures of every size through every family: counts against the reference's processors
// (tests/data/sizes/reference.json, made by tools/make_size_cases.py), pixels, prompts and towers for real.
// A size works as it does there, or is an error that says why.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/mapped_file.h"
#include "models/testing/tiny_models.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using test::Geometry;
using test::TinyModel;

constexpr int kSmallSide = 40;
constexpr std::int64_t kRefused = -1;

const Json& reference() {
  static const Json out =
      parse_json(read_text_file(test::source_dir() / "tests/data/sizes/reference.json"), "reference.json");
  return out;
}

// The reference's families; others share a processor with one of these, or (Qwen-VL, whose code is its own)
// take one number of places for any size.
Json reference_of(std::string_view family) {
  if (family == "qwen2_5_vl") family = "qwen2_vl";
  if (family == "instructblip") family = "blip2";
  if (family == "qwen_vl") return 256;
  return reference().at("families").at(std::string(family));
}

// Width, height and what the reference counts, of every size.
using OnSize = std::function<void(int width, int height, std::int64_t expected)>;
void for_each_size(const Json& expected, const OnSize& on_size) {
  const auto value = [&](const char* part, std::size_t i) -> std::int64_t {
    if (expected.is_number()) return expected.get<std::int64_t>();
    const Json& one = expected.at(part).at(i);
    return one.is_null() ? kRefused : one.get<std::int64_t>();
  };
  for (int h = 1; h <= kSmallSide; ++h)
    for (int w = 1; w <= kSmallSide; ++w) {
      const auto row = static_cast<std::size_t>(h - 1);
      const auto column = static_cast<std::size_t>(w - 1);
      if (expected.is_number()) {
        on_size(w, h, value("small", 0));
      } else {
        const Json& one = expected.at("small").at(row).at(column);
        on_size(w, h, one.is_null() ? kRefused : one.get<std::int64_t>());
      }
    }
  const auto lengths = reference().at("lengths").get<std::vector<int>>();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    on_size(lengths[i], 1, value("wide", i));
    on_size(1, lengths[i], value("tall", i));
  }
}

MediaMeta meta_of(int width, int height) {
  MediaMeta out;
  out.width_px = width;
  out.height_px = height;
  return out;
}

// The plan, or nothing when the family refuses the size; then the message must name it.
std::optional<MediaPlan> plan_of(const Model& model, int width, int height,
                                 const MediaOptions& options = {}) {
  try {
    return model.plan_media(meta_of(width, height), options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(fmt::format("{}x{} pixels", width, height)));
    return std::nullopt;
  }
}

Image picture(int width, int height) {
  Image out{width, height,
            PoolVector<std::uint8_t>(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3)};
  std::uint32_t state = 1;
  for (std::uint8_t& value : out.rgb)
    value = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24);
  return out;
}

std::string size_text(int width, int height) { return fmt::format("{}x{}", width, height); }

class PictureSizes : public testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Families, PictureSizes, testing::ValuesIn(test::kFamilies),
                         [](const auto& at) { return std::string(at.param); });

TEST_P(PictureSizes, TakeThePlacesTheReferenceCounts) {
  const TinyModel model(GetParam(), Geometry::kPublished);
  const Json expected = reference_of(GetParam());
  int n = 0;
  const auto check = [&](int width, int height, std::int64_t count) {
    const auto plan = plan_of(*model, width, height);
    EXPECT_EQ(plan ? plan->n_prompt_tokens : kRefused, count) << size_text(width, height);
    ++n;
  };
  for_each_size(expected, check);
  const Json& large = expected.is_number() ? expected : expected.at("large");
  check(8000, 8000, large.is_null() ? kRefused : large.get<std::int64_t>());
  EXPECT_GE(n, kSmallSide * kSmallSide + 200);
}

// Pixels are finite and as many as planned; the prompt has room for exactly the rows of the encoder.
void check_pixels_and_prompt(const Model& model, const Tensor& pixels, const MediaPlan& plan,
                             const std::string& what) {
  const float* values = pixels.f32();
  const std::int64_t n = pixels.view().numel();
  ASSERT_GT(n, 0) << what;
  for (std::int64_t i = 0; i < n; ++i) ASSERT_LT(std::fabs(values[i]), 3.0F) << what << " at " << i;
  const std::int32_t ids[] = {model.info().image_token_id, 5};
  const PromptLayout layout = model.expand_prompt(ids, {&plan, 1});
  const std::int32_t text[] = {5};
  const auto n_extra = static_cast<std::int64_t>(layout.input_ids.size()) - plan.n_prompt_tokens -
                       static_cast<std::int64_t>(model.expand_prompt(text, {}).input_ids.size());
  ASSERT_EQ(n_extra, model.info().add_special_tokens_with_media ? 0 : 2) << what;  // Fuyu: <s>, <0x04>
  std::int64_t next_media_row = 0;
  std::int64_t next_prompt_row = 0;
  for (const MediaRun& run : layout.runs) {
    ASSERT_EQ(run.media_index, 0);
    ASSERT_EQ(run.first_media_row, next_media_row) << what;
    ASSERT_GE(run.first_prompt_row, next_prompt_row) << what;
    next_media_row += run.n_rows;
    next_prompt_row = run.first_prompt_row + run.n_rows;
  }
  ASSERT_EQ(next_media_row, plan.n_tokens) << what;
  ASSERT_LE(next_prompt_row, static_cast<std::int64_t>(layout.input_ids.size())) << what;
  ASSERT_EQ(layout.positions.size(),
            layout.input_ids.size() * static_cast<std::size_t>(model.info().n_position_axes));
}

TEST_P(PictureSizes, GivePixelsAndPrompts) {
  const TinyModel model(GetParam(), Geometry::kSmall);
  int n_refused = 0;
  int n = 0;
  for_each_size(reference_of(GetParam()), [&](int width, int height, std::int64_t) {
    const auto plan = plan_of(*model, width, height);
    ++n;
    if (!plan) {
      ++n_refused;
      return;
    }
    const Image image = picture(width, height);
    check_pixels_and_prompt(*model, model->preprocess({&image, 1}, *plan, nullptr), *plan,
                            size_text(width, height));
  });
  EXPECT_LT(n_refused, n / 5);
}

std::int64_t encoded_rows(TinyModel& model, const Image& image, const MediaPlan& plan, Arena& arena) {
  MediaItem item;
  item.plan = plan;
  item.pixels = model->preprocess({&image, 1}, plan, nullptr);
  item.text_ids = {1, 2, 3};
  arena.reset();
  ExecContext cx(model.backend(), arena);
  const TensorView rows = model->encode_media(cx, {&item, 1});
  for (std::int64_t i = 0; i < rows.numel(); ++i) EXPECT_TRUE(std::isfinite(rows.cf32()[i]));
  return rows.dim(0);
}

TEST_P(PictureSizes, GiveAsManyRowsAsPlanned) {
  TinyModel model(GetParam(), Geometry::kSmall);
  Arena arena;
  const int sides[] = {1, 2, 3, 5, 6, 7, 13, 14, 15, 27, 28, 29, 39, 40};
  std::vector<std::pair<int, int>> sizes{{257, 27}, {332, 27}, {26, 28}, {27, 27}, {336, 336}, {161, 184}};
  for (const int w : sides)
    for (const int h : sides) sizes.emplace_back(w, h);
  for (const int n : {54, 55, 56, 57, 64, 96, 97, 100, 199, 200, 201, 512, 1023, 2048, 3000}) {
    sizes.emplace_back(n, 1);
    sizes.emplace_back(1, n);
    sizes.emplace_back(n, 60);
    sizes.emplace_back(60, n);
  }
  for (const auto& [w, h] : sizes) {
    const auto plan = plan_of(*model, w, h);
    if (!plan) continue;
    ASSERT_EQ(encoded_rows(model, picture(w, h), *plan, arena), plan->n_tokens) << size_text(w, h);
  }
}

// Large and very narrow ones in the published geometry: nothing between picture and tensor may grow with the
// ratio of the sides (the short side of 1x3000 resized to 336 would be 336x1008000 pixels before the crop).
TEST_P(PictureSizes, LargeAndNarrow) {
  TinyModel model(GetParam(), Geometry::kPublished);
  const MediaOptions limits{.min_pixels = 0, .max_pixels = 1003520};
  for (const auto& [w, h] : {std::pair(3000, 1), std::pair(1, 3000), std::pair(65535, 1), std::pair(1, 65535),
                             std::pair(65535, 40), std::pair(8000, 8000)}) {
    const auto plan = plan_of(*model, w, h, limits);
    if (!plan) continue;
    const Image image = w == 8000
                            ? Image{w, h,
                                    PoolVector<std::uint8_t>(
                                        static_cast<std::size_t>(w) * static_cast<std::size_t>(h) * 3, 100)}
                            : picture(w, h);
    check_pixels_and_prompt(*model, model->preprocess({&image, 1}, *plan, nullptr), *plan, size_text(w, h));
  }
}

}  // namespace
}  // namespace triptych
