// What the processor of CLIP's relatives makes of its configuration, and that its short cuts (a part of a
// resize, a padded square in blocks) change no bit.
#include "models/clip_image_processor.h"

#include <gmock/gmock.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych {
namespace {

Image picture(int width, int height) {
  Image out{width, height, {}};
  std::uint32_t state = 7;
  for (int i = 0; i < width * height * 3; ++i)
    out.rgb.push_back(static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24));
  return out;
}

ClipImageProcessor processor(const Json& config) {
  return ClipImageProcessor::parse(JsonView(config, "preprocessor_config.json"));
}

void expect_equal(const Tensor& got, const Image& want, const NormalizeOptions& options) {
  ASSERT_EQ(got.shape(), Shape({3, want.height_px, want.width_px}));
  const std::vector<float> values = normalize_chw(want, options);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), got.f32()));
}

// Wide, tall, enlarged, shrunk, one side unchanged, and the crop larger than the resized picture.
TEST(ClipImageProcessor, ResizeThenCrop) {
  for (const auto& [w, h] :
       {std::pair{40, 30}, {30, 40}, {90, 28}, {28, 90}, {200, 61}, {1, 300}, {300, 1}, {28, 28}})
    for (const int crop_side : {28, 20, 35}) {
      const ClipImageProcessor p = processor(
          {{"size", {{"shortest_edge", 28}}}, {"crop_size", {{"width", crop_side}, {"height", crop_side}}}});
      const Image image = picture(w, h);
      const SizePx size = shortest_edge_size({w, h}, 28);
      SCOPED_TRACE(fmt::format("{}x{} crop {}", w, h, crop_side));
      expect_equal(
          p(image, nullptr),
          center_crop(resize(image, size.width_px, size.height_px, Filter::kBicubic), {crop_side, crop_side}),
          p.normalize);
    }
}

TEST(ClipImageProcessor, WithoutResizing) {
  const ClipImageProcessor p =
      processor({{"do_resize", false}, {"crop_size", {{"width", 20}, {"height", 31}}}});
  const Image image = picture(40, 26);
  expect_equal(p(image, nullptr), center_crop(image, {20, 31}), p.normalize);
}

TEST(ClipImageProcessor, PaddedSquareInBlocks) {
  const ClipImageProcessor p = processor({{"image_processor_type", "LlavaImageProcessor"},
                                          {"do_pad", true},
                                          {"size", {{"shortest_edge", 28}}},
                                          {"crop_size", {{"width", 28}, {"height", 28}}}});
  for (const auto& [w, h] : {std::pair{1, 1},
                             {40, 30},
                             {30, 41},
                             {600, 517},
                             {517, 600},
                             {1, 700},
                             {700, 1},
                             {20, 28},
                             {28, 28}}) {
    const Image image = picture(w, h);
    SCOPED_TRACE(fmt::format("{}x{}", w, h));
    expect_equal(p(image, nullptr),
                 resize(pad_to_square(image, mean_colour(p.normalize.mean)), 28, 28, Filter::kBicubic),
                 p.normalize);
  }
}

// The square around it would take 12 GB.
TEST(ClipImageProcessor, TooNarrowForASquareIsRefused) {
  const ClipImageProcessor p = processor({{"image_processor_type", "LlavaImageProcessor"}, {"do_pad", true}});
  try {
    p(picture(1, 65535), nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::HasSubstr("1x65535 pixels"));
  }
}

}  // namespace
}  // namespace triptych
