#include "media/normalize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "media/image_decode.h"
#include "media/image_resize.h"
#include "media/testing/test_images.h"

namespace triptych {
namespace {

using testing::image_data;
using testing::noise;
using testing::read_bytes;
using testing::read_json;

constexpr std::array<double, 3> kClipMean{0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipStd{0.26862954, 0.26130258, 0.27577711};

std::array<int, 3> px(const Image& image, int x, int y) {
  const std::size_t i = static_cast<std::size_t>(y) * image.row_bytes() + static_cast<std::size_t>(x) * 3;
  return {image.rgb[i], image.rgb[i + 1], image.rgb[i + 2]};
}

TEST(Sizes, ShortestEdgeTruncates) {
  EXPECT_EQ(shortest_edge_size({640, 480}, 336), (SizePx{448, 336}));
  EXPECT_EQ(shortest_edge_size({500, 333}, 336), (SizePx{504, 336}));  // 504.504...
  EXPECT_EQ(shortest_edge_size({333, 500}, 336), (SizePx{336, 504}));
  EXPECT_EQ(shortest_edge_size({7, 7}, 224), (SizePx{224, 224}));
  EXPECT_EQ(shortest_edge_size({3, 1}, 5), (SizePx{15, 5}));
  EXPECT_THROW(shortest_edge_size({1, 2'000'000'000}, 336), Error);
}

TEST(Crop, TakesTheRectangle) {
  const Image image = noise(9, 7, 2);
  const Image part = crop(image, 2, 3, {4, 2});
  for (int y = 0; y < 2; ++y)
    for (int x = 0; x < 4; ++x) EXPECT_EQ(px(part, x, y), px(image, x + 2, y + 3));
  EXPECT_THROW(crop(image, 6, 0, {4, 2}), Error);
  EXPECT_THROW(crop(image, -1, 0, {4, 2}), Error);
}

TEST(Crop, CenterRoundsDown) {
  const Image image = noise(9, 8, 2);
  const Image part = center_crop(image, {4, 3});
  EXPECT_EQ(px(part, 0, 0), px(image, 2, 2));  // (9 - 4) / 2, (8 - 3) / 2
}

// The reference pads with zeros, the odd row or column in front.
TEST(Crop, CenterPadsSmallPicturesWithBlack) {
  const Image image = noise(3, 9, 2);
  const Image part = center_crop(image, {6, 4});
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 6; ++x) {
      const bool is_inside = x >= 2 && x < 5;  // ceil((6 - 3) / 2) = 2
      EXPECT_EQ(px(part, x, y), is_inside ? px(image, x - 2, y + 2) : (std::array<int, 3>{0, 0, 0}))
          << x << "," << y;
    }
}

// 10x7 to a square: one row on top, two below.
TEST(Pad, SquareKeepsTheOddRowBelow) {
  const Image image = noise(10, 7, 2);
  const Rgb8 colour = mean_colour(kClipMean);
  EXPECT_EQ(colour, (Rgb8{122, 116, 104}));
  const Image square = pad_to_square(image, colour);
  ASSERT_EQ(square.width_px, 10);
  ASSERT_EQ(square.height_px, 10);
  for (int y = 0; y < 10; ++y)
    for (int x = 0; x < 10; ++x)
      EXPECT_EQ(px(square, x, y),
                y >= 1 && y < 8 ? px(image, x, y - 1) : (std::array<int, 3>{122, 116, 104}));
  const Image tall = pad_to_square(noise(2, 5, 2), kBlack);
  EXPECT_EQ(px(tall, 0, 0), (std::array<int, 3>{0, 0, 0}));
  EXPECT_EQ(px(tall, 1, 0), px(noise(2, 5, 2), 0, 0));
  EXPECT_EQ(pad_to_square(tall, kWhite), tall);
}

TEST(Normalize, IsTheReferencesArithmetic) {
  const Image image{2, 1, {0, 128, 255, 7, 200, 90}};
  const auto got = normalize_chw(image, {.mean = kClipMean, .std = kClipStd});
  const auto want = [](int value, std::size_t c) {
    const auto x = static_cast<float>(static_cast<double>(value) * 0.00392156862745098);
    const float centred = x - static_cast<float>(kClipMean[c]);
    return centred / static_cast<float>(kClipStd[c]);
  };
  EXPECT_THAT(got, ::testing::ElementsAre(want(0, 0), want(7, 0), want(128, 1), want(200, 1), want(255, 2),
                                          want(90, 2)));
  EXPECT_THAT(normalize_chw(image, {.do_normalize = false}),
              ::testing::ElementsAre(0.0F, 7 / 255.0F, 128 / 255.0F, 200 / 255.0F, 1.0F, 90 / 255.0F));
  EXPECT_THAT(normalize_chw(image, {.do_rescale = false, .do_normalize = false}),
              ::testing::ElementsAre(0.0F, 7.0F, 128.0F, 200.0F, 255.0F, 90.0F));
}

// The processors that are made of these primitives alone, against the reference's sampled values.
std::vector<float> run_processor(const std::string& name, const Image& picture) {
  const NormalizeOptions clip{.mean = kClipMean, .std = kClipStd};
  if (name == "blip_224") return normalize_chw(resize(picture, 224, 224, Filter::kBicubic), clip);
  const Image start = name == "llava_pad_336" ? pad_to_square(picture, mean_colour(kClipMean)) : picture;
  const SizePx size = shortest_edge_size({start.width_px, start.height_px}, 336);
  return normalize_chw(
      center_crop(resize(start, size.width_px, size.height_px, Filter::kBicubic), {336, 336}), clip);
}

TEST(Normalize, WholeProcessorsMatchTheReference) {
  int n_cases = 0;
  const Json golden = read_json(image_data() / "golden.json");
  for (const Json& entry : golden.at("processors")) {
    const std::string name = entry.at("processor");
    if (name != "clip_336" && name != "llava_pad_336" && name != "blip_224") continue;
    const std::string file = entry.at("file");
    const Image picture = decode_image(read_bytes(image_data() / "files" / file), {}, file);
    const std::vector<float> got = run_processor(name, picture);
    double sum = 0.0;
    for (const float x : got) sum += double{x};
    EXPECT_NEAR(sum / static_cast<double>(got.size()), entry.at("mean").get<double>(), 1e-6)
        << name << " " << file;
    const Json& indices = entry.at("indices");
    const Json& values = entry.at("values");
    ASSERT_EQ(indices.size(), values.size());
    for (std::size_t i = 0; i < indices.size(); ++i)
      ASSERT_NEAR(double{got.at(indices[i].get<std::size_t>())}, values[i].get<double>(),
                  6e-7)  // six decimals are stored
          << name << " " << file << " at " << indices[i];
    ++n_cases;
  }
  EXPECT_EQ(n_cases, 15);
}

}  // namespace
}  // namespace triptych
