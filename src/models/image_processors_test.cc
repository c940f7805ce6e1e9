// What each family's preprocess gives, against the sampled values of the reference's image processors
// (tests/data/images/golden.json; Qwen-VL's own in tests/data/sizes/reference.json): same shape, and equal to
// the six decimals that are stored.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include <nlohmann/json.hpp>

#include "media/image_decode.h"
#include "media/testing/test_images.h"
#include "models/testing/tiny_models.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using test::Geometry;
using test::TinyModel;
using testing::image_data;
using testing::read_bytes;
using testing::read_json;

constexpr double kStoredDigits = 6e-7;

struct Processed {
  MediaPlan plan;
  Tensor pixels;
};

Processed process(const Model& model, const std::string& file) {
  const Image picture = decode_image(read_bytes(image_data() / "files" / file), {}, file);
  MediaMeta meta;
  meta.width_px = picture.width_px;
  meta.height_px = picture.height_px;
  Processed out;
  out.plan = model.plan_media(meta, {});
  out.pixels = model.preprocess({&picture, 1}, out.plan, nullptr);
  return out;
}

// Our value at a flat index of the reference's tensor.
using ValueAt = std::function<double(const Processed&, std::int64_t index)>;
double same_index(const Processed& got, std::int64_t index) {
  return static_cast<double>(got.pixels.f32()[index]);
}

// The reference pads Fuyu's pictures to 1080x1920 planes and cuts patches later; we only make the patches
// that are used. Elsewhere it holds padding.
double fuyu_plane(const Processed& got, std::int64_t index) {
  constexpr std::int64_t kPatch = 30;
  constexpr std::int64_t kWidth = 1920;
  constexpr std::int64_t kHeight = 1080;
  const std::int64_t channel = index / (kWidth * kHeight);
  const std::int64_t y = index / kWidth % kHeight;
  const std::int64_t x = index % kWidth;
  if (y >= got.plan.grid_h * kPatch || x >= got.plan.grid_w * kPatch)
    return static_cast<double>((1.0F / 255.0F - 0.5F) / 0.5F);
  const std::int64_t patch = y / kPatch * got.plan.grid_w + x / kPatch;
  return static_cast<double>(
      got.pixels.view().row(patch).cf32()[((y % kPatch) * kPatch + x % kPatch) * 3 + channel]);
}

double worst_difference(const Processed& got, const Json& entry, const ValueAt& value_at) {
  const auto indices = entry.at("indices").get<std::vector<std::int64_t>>();
  const auto values = entry.at("values").get<std::vector<double>>();
  EXPECT_GE(indices.size(), 100U);
  EXPECT_EQ(indices.size(), values.size());
  double worst = 0;
  for (std::size_t i = 0; i < indices.size(); ++i)
    worst = std::max(worst, std::fabs(value_at(got, indices[i]) - values[i]));
  return worst;
}

double mean_of(const Tensor& pixels) {
  double sum = 0;
  for (std::int64_t i = 0; i < pixels.view().numel(); ++i) sum += static_cast<double>(pixels.f32()[i]);
  return sum / static_cast<double>(pixels.view().numel());
}

// [1, ...] of the reference without its batch dimension.
Shape shape_of(const Json& entry, bool batched) {
  auto dims = entry.at("shape").get<std::vector<std::int64_t>>();
  if (batched) dims.erase(dims.begin());
  return Shape(dims);
}

void expect_processor(const std::string& name, TinyModel& model, std::size_t n_pictures,
                      bool batched = true) {
  std::size_t n = 0;
  const Json golden = read_json(image_data() / "golden.json");
  for (const Json& entry : golden.at("processors")) {
    if (entry.at("processor") != name) continue;
    const std::string file = entry.at("file");
    SCOPED_TRACE(name + " " + file);
    const Processed got = process(*model, file);
    ASSERT_EQ(got.pixels.shape(), shape_of(entry, batched));
    EXPECT_LE(worst_difference(got, entry, same_index), kStoredDigits);
    EXPECT_NEAR(mean_of(got.pixels), entry.at("mean").get<double>(), 1e-6);
    ++n;
  }
  EXPECT_EQ(n, n_pictures);
}

TEST(ImageProcessors, Llava) {
  TinyModel model("llava", Geometry::kPublished);
  expect_processor("clip_336", model, 5);
}

TEST(ImageProcessors, LlavaThatPadsToASquare) {
  auto files = test::tiny_files("llava", Geometry::kPublished);
  files.preprocessor["image_processor_type"] = "LlavaImageProcessor";
  files.preprocessor["do_pad"] = true;
  TinyModel model(std::move(files));
  expect_processor("llava_pad_336", model, 5);
}

TEST(ImageProcessors, LlavaNext) {
  TinyModel model("llava_next", Geometry::kPublished);
  expect_processor("llava_next_336", model, 5);
}

TEST(ImageProcessors, Qwen2VlAndQwen25Vl) {
  for (const char* family : {"qwen2_vl", "qwen2_5_vl"}) {
    TinyModel model(family, Geometry::kPublished);
    expect_processor("qwen2_vl", model, 4, false);
    auto files = test::tiny_files(family, Geometry::kPublished);
    files.preprocessor = {{"min_pixels", 256 * 28 * 28}, {"max_pixels", 1280 * 28 * 28}};
    TinyModel narrow(std::move(files));
    expect_processor("qwen2_vl_small", narrow, 5, false);
  }
}

TEST(ImageProcessors, Blip2AndInstructBlip) {
  for (const char* family : {"blip2", "instructblip"}) {
    TinyModel model(family, Geometry::kPublished);
    expect_processor("blip_224", model, 5);
  }
}

TEST(ImageProcessors, Fuyu) {
  TinyModel model("fuyu", Geometry::kPublished);
  int n = 0;
  const Json golden = read_json(image_data() / "golden.json");
  for (const Json& entry : golden.at("processors")) {
    if (entry.at("processor") != "fuyu") continue;
    const std::string file = entry.at("file");
    SCOPED_TRACE(file);
    const Processed got = process(*model, file);
    EXPECT_EQ(entry.at("shape"), (Json{1, 1, 3, 1080, 1920}));
    EXPECT_EQ(entry.at("image_unpadded_heights"),
              Json::parse(fmt::format("[[{}]]", got.plan.resized_height_px)));
    EXPECT_EQ(entry.at("image_unpadded_widths"),
              Json::parse(fmt::format("[[{}]]", got.plan.resized_width_px)));
    EXPECT_LE(worst_difference(got, entry, fuyu_plane), kStoredDigits);
    double sum = 0;
    for (std::int64_t i = 0; i < 3 * 1080 * 1920; ++i) sum += fuyu_plane(got, i);
    EXPECT_NEAR(sum / (3 * 1080 * 1920), entry.at("mean").get<double>(), 1e-6);
    ++n;
  }
  EXPECT_EQ(n, 5);
}

TEST(ImageProcessors, QwenVl) {
  TinyModel model("qwen_vl", Geometry::kPublished);
  const Json pictures =
      read_json(test::source_dir() / "tests/data/sizes/reference.json").at("qwen_vl_pixels");
  EXPECT_EQ(pictures.size(), 5U);
  for (const auto& [file, entry] : pictures.items()) {
    SCOPED_TRACE(file);
    const Processed got = process(*model, file);
    ASSERT_EQ(got.pixels.shape(), Shape({3, 448, 448}));
    EXPECT_LE(worst_difference(got, entry, same_index), kStoredDigits);
    EXPECT_NEAR(mean_of(got.pixels), entry.at("mean").get<double>(), 1e-6);
  }
}

}  // namespace
}  // namespace triptych
