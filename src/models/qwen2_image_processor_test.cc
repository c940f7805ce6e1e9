// Sizes by the published formula (values by hand and from the reference), pixels against Pillow's values.
#include "models/qwen2_image_processor.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/thread_pool.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "support/shared_dir.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

constexpr PixelLimits kPublished{.min_pixels = 3136, .max_pixels = 12845056};
constexpr std::int64_t kManyTokens = 32768;

// Height x width, as the published vectors are written.
SizePx resized(int height, int width, PixelLimits limits = kPublished) {
  const SizePx size = smart_resize({width, height}, 28, limits);
  return {size.height_px, size.width_px};  // compared as {height, width}
}
MATCHER_P2(IsHeightWidth, height, width, "") { return arg.width_px == height && arg.height_px == width; }

Qwen2ImageProcessor processor(const char* config = R"({"min_pixels": 3136, "max_pixels": 12845056})") {
  const Json json = Json::parse(config);
  return Qwen2ImageProcessor::for_images(JsonView(json, "preprocessor_config.json"), {});
}

TEST(SmartResize, PublishedVectors) {
  EXPECT_THAT(resized(224, 224), IsHeightWidth(224, 224));
  EXPECT_THAT(resized(480, 640), IsHeightWidth(476, 644));
  EXPECT_THAT(resized(1080, 1920), IsHeightWidth(1092, 1932));
  EXPECT_THAT(resized(100, 100), IsHeightWidth(112, 112));
  EXPECT_THAT(resized(14, 14), IsHeightWidth(56, 56));
  EXPECT_THAT(resized(42, 70), IsHeightWidth(56, 56));
  EXPECT_THAT(resized(20, 500), IsHeightWidth(28, 504));
  EXPECT_THAT(resized(3000, 4000), IsHeightWidth(2996, 4004));
  EXPECT_THAT(resized(899, 1024), IsHeightWidth(896, 1036));
  EXPECT_THAT(resized(1080, 1920, {3136, 1003520}), IsHeightWidth(728, 1316));
}

TEST(SmartResize, SidesBelowTheFactorAreEnlarged) {
  EXPECT_THAT(resized(1, 1), IsHeightWidth(56, 56));
  EXPECT_THAT(resized(27, 257), IsHeightWidth(28, 252));
  EXPECT_THAT(resized(27, 332), IsHeightWidth(28, 336));
  EXPECT_THAT(resized(28, 26), IsHeightWidth(84, 56));
}

TEST(SmartResize, HalvesGoToTheEvenMultiple) {
  EXPECT_THAT(resized(70, 70), IsHeightWidth(56, 56));
  EXPECT_THAT(resized(126, 126), IsHeightWidth(112, 112));
  EXPECT_THAT(resized(182, 182), IsHeightWidth(168, 168));
}

TEST(SmartResize, NarrowPicturesAreRefused) {
  EXPECT_NO_THROW(resized(1, 200));
  EXPECT_NO_THROW(resized(14, 2800));
  for (const SizePx size : {SizePx{201, 1}, SizePx{1, 201}, SizePx{2801, 14}, SizePx{3000, 1}}) try {
      smart_resize(size, 28, kPublished);
      FAIL() << size.width_px << "x" << size.height_px;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("{}x{} pixels", size.width_px, size.height_px)));
      EXPECT_THAT(error.what(), HasSubstr("200 times"));
    }
}

// FNV-1a over height and width of the results, 0 and 0 for a size that is refused: the hashes are of the
// reference's own function (transformers 5.24, image_processing_qwen2_vl.py).
class SizeHash {
 public:
  /// n_frames of a video of Qwen3-VL; 0: a picture.
  void add(int height, int width, PixelLimits limits, int n_frames = 0) {
    SizePx size{0, 0};
    try {
      size = n_frames > 0 ? smart_resize_video({width, height}, n_frames, 32, 2, limits)
                          : smart_resize({width, height}, 28, limits);
    } catch (const Error&) {
      ++n_refused;
    }
    for (const int v : {size.height_px, size.width_px})
      for (int b = 0; b < 4; ++b)
        value = (value ^ ((static_cast<unsigned>(v) >> (8 * b)) & 255U)) * 0x100000001b3ULL;
  }
  std::uint64_t value = 0xcbf29ce484222325ULL;
  int n_refused = 0;
};

TEST(SmartResize, EverySizeAsTheReference) {
  struct Expected {
    PixelLimits limits;
    std::uint64_t small, lines, grid;
  };
  const Expected all[] = {{kPublished, 0xf962505f377f7445, 0x847529090c425d85, 0xd463435c7ad5159c},
                          {{3136, 18816}, 0xf962505f377f7445, 0x847529090c425d85, 0x65131ef8e1578b31},
                          {{200704, 1003520}, 0x6ac8f0f31f5c7d7d, 0x5b91ee9c43c0cbdd, 0x44274fd27b9fc987},
                          {{1, 784}, 0x6bca3c7c92402325, 0x70b9fea7306bcf25, 0xc600ba1d17cf2c06}};
  for (const Expected& e : all) {
    SizeHash small, lines, grid;
    for (int h = 1; h <= 40; ++h)
      for (int w = 1; w <= 40; ++w) small.add(h, w, e.limits);
    for (int n = 1; n <= 3000; ++n) lines.add(1, n, e.limits);
    for (int n = 1; n <= 3000; ++n) lines.add(n, 1, e.limits);
    for (int h = 1; h < 4000; h += 37)
      for (int w = 1; w < 4000; w += 41) grid.add(h, w, e.limits);
    EXPECT_EQ(small.value, e.small);
    EXPECT_EQ(small.n_refused, 0);
    EXPECT_EQ(lines.value, e.lines);
    EXPECT_EQ(lines.n_refused, 5600);
    EXPECT_EQ(grid.value, e.grid);
    EXPECT_EQ(grid.n_refused, 196);
  }
  EXPECT_THAT(resized(8000, 8000), IsHeightWidth(3584, 3584));
  EXPECT_THAT(resized(8000, 8000, {200704, 1003520}), IsHeightWidth(980, 980));
}

// Hashes of smart_resize in video_processing_qwen3_vl.py.
TEST(SmartResize, EveryVideoAsTheReference) {
  struct Expected {
    PixelLimits limits;
    std::uint64_t small, lines, grid;
  };
  const Expected all[] = {{{4096, 25165824}, 0xf31617cd1d9ad1a5, 0xac53394f58cf5945, 0x2e540c09f18ba335},
                          {{131072, 786432}, 0x5cb1ef070e290915, 0x286f5d166214fcd5, 0x7000e238dff37bf7},
                          {{4096, 409600}, 0xe852876f60503705, 0x446bfc81a98fda5, 0x7e226603f260ce70}};
  for (const Expected& e : all) {
    SizeHash small, lines, grid;
    for (const int n : {2, 3, 5, 16, 768}) {
      for (int h = 1; h <= 40; ++h)
        for (int w = 1; w <= 40; ++w) small.add(h, w, e.limits, n);
      for (int side = 1; side <= 1000; ++side) lines.add(1, side, e.limits, n);
      for (int side = 1; side <= 1000; ++side) lines.add(side, 1, e.limits, n);
      for (int h = 1; h <= 2000; h += 83)
        for (int w = 1; w <= 2000; w += 97) grid.add(h, w, e.limits, n);
    }
    EXPECT_EQ(small.value, e.small);
    EXPECT_EQ(small.n_refused, 0);
    EXPECT_EQ(lines.value, e.lines);
    EXPECT_EQ(lines.n_refused, 8000);
    EXPECT_EQ(grid.value, e.grid);
    EXPECT_EQ(grid.n_refused, 200);
  }
  const SizePx one = smart_resize_video({640, 480}, 1, 32, 2, {4096, 25165824});  // as two
  EXPECT_EQ(one.width_px, 640);
  EXPECT_EQ(one.height_px, 480);
}

Image unique_pixels(int width, int height) {
  Image image{width, height, {}};
  for (int i = 0; i < width * height; ++i) {
    image.rgb.push_back(static_cast<std::uint8_t>(i));
    image.rgb.push_back(static_cast<std::uint8_t>(i >> 8));
    image.rgb.push_back(static_cast<std::uint8_t>(7 * i + 3));
  }
  return image;
}

// Values of a frame at (channel, y, x) where the patch vector says they are.
void expect_frame(const Tensor& patches, const MediaPlan& plan, int slot, const Image& image) {
  const NormalizeOptions options = [] {
    NormalizeOptions o;
    o.mean = {0.48145466, 0.4578275, 0.40821073};
    o.std = {0.26862954, 0.26130258, 0.27577711};
    return o;
  }();
  const std::vector<float> plane = normalize_chw(image, options);
  for (int channel = 0; channel < 3; ++channel)
    for (int y = 0; y < image.height_px; ++y)
      for (int x = 0; x < image.width_px; ++x) {
        const int r = y / 14;
        const int c = x / 14;
        const int n = (slot / 2 * plan.grid_h * plan.grid_w) +
                      (((r / 2) * (plan.grid_w / 2) + c / 2) * 2 + r % 2) * 2 + c % 2;
        const int i = ((channel * 2 + slot % 2) * 14 + y % 14) * 14 + x % 14;
        const std::size_t at =
            (static_cast<std::size_t>(channel) * static_cast<std::size_t>(image.height_px) +
             static_cast<std::size_t>(y)) *
                static_cast<std::size_t>(image.width_px) +
            static_cast<std::size_t>(x);
        ASSERT_EQ(patches.view().row(n).cf32()[i], plane[at]) << channel << " " << y << " " << x;
      }
}

TEST(Qwen2Processor, PatchesInMergeBlockOrderWithTheFrameTwice) {
  const Qwen2ImageProcessor p = processor();
  const Image image = unique_pixels(112, 84);
  const MediaPlan plan = p.plan({.width_px = 112, .height_px = 84}, {}, kManyTokens);
  EXPECT_EQ(plan.grid_t, 1);
  EXPECT_EQ(plan.grid_h, 6);
  EXPECT_EQ(plan.grid_w, 8);
  EXPECT_EQ(plan.n_tokens, 12);
  const Tensor patches = p({&image, 1}, plan, nullptr);
  ASSERT_EQ(patches.shape(), (Shape{48, 1176}));
  expect_frame(patches, plan, 0, image);
  expect_frame(patches, plan, 1, image);
}

TEST(Qwen2Processor, VideoRepeatsItsLastFrame) {
  const Json json = Json::parse(R"({"size": {"shortest_edge": 784, "longest_edge": 602112}})");
  const auto p = Qwen2ImageProcessor::for_videos(JsonView(json, "video_preprocessor_config.json"), {});
  std::vector<Image> frames;
  for (int i = 0; i < 3; ++i) {
    frames.push_back(unique_pixels(56, 28));
    for (std::uint8_t& v : frames.back().rgb) v = static_cast<std::uint8_t>(v + 50 * i);
  }
  const MediaPlan plan = p.plan(
      {.width_px = 56, .height_px = 28, .n_frames = 3, .frames_per_s = 2, .is_video = true}, {}, kManyTokens);
  EXPECT_EQ(plan.grid_t, 2);
  EXPECT_EQ(plan.n_tokens, 2 * 2);
  const Tensor patches = p(frames, plan, nullptr);
  for (int slot = 0; slot < 4; ++slot)
    expect_frame(patches, plan, slot, frames[static_cast<std::size_t>(std::min(slot, 2))]);

  frames[1] = unique_pixels(28, 56);
  EXPECT_THROW(p(frames, plan, nullptr), Error);
}

TEST(Qwen2Processor, ThreadsDoNotChangeTheResult) {
  const Qwen2ImageProcessor p = processor();
  const Image image = unique_pixels(300, 190);
  const MediaPlan plan = p.plan({.width_px = 300, .height_px = 190}, {}, kManyTokens);
  ThreadPool pool(4);
  const Tensor one = p({&image, 1}, plan, nullptr);
  const Tensor four = p({&image, 1}, plan, &pool);
  ASSERT_EQ(one.shape(), four.shape());
  EXPECT_TRUE(std::equal(one.f32(), one.f32() + one.view().numel(), four.f32()));
}

// Small sizes for real, and a large one: run under the sanitizers.
TEST(Qwen2Processor, AllSmallSizesGivePixels) {
  const Qwen2ImageProcessor p = processor(R"({"min_pixels": 3136, "max_pixels": 18816})");
  for (int h = 1; h <= 40; ++h)
    for (const int w : {1, 2, 3, 13, 27, 28, 29, 40}) {
      const Image image = unique_pixels(w, h);
      const MediaPlan plan = p.plan({.width_px = w, .height_px = h}, {}, kManyTokens);
      const Tensor patches = p({&image, 1}, plan, nullptr);
      ASSERT_EQ(patches.view().dim(0), 4 * plan.n_tokens) << w << "x" << h;
      for (std::int64_t i = 0; i < patches.view().numel(); ++i) ASSERT_LT(std::fabs(patches.f32()[i]), 3.0F);
    }
  for (const auto& [w, h] :
       {std::pair{1, 200}, std::pair{200, 1}, std::pair{14, 2800}, std::pair{3000, 15}}) {
    const Image image = unique_pixels(w, h);
    const MediaPlan plan = p.plan({.width_px = w, .height_px = h}, {}, kManyTokens);
    EXPECT_EQ(p({&image, 1}, plan, nullptr).view().dim(0), 4 * plan.n_tokens) << w << "x" << h;
  }
}

TEST(Qwen2Processor, LargePicture) {
  const Qwen2ImageProcessor p = processor(R"({"min_pixels": 3136, "max_pixels": 1003520})");
  const Image image{8000, 8000, PoolVector<std::uint8_t>(std::size_t{8000} * 8000 * 3, 128)};
  const MediaPlan plan = p.plan({.width_px = 8000, .height_px = 8000}, {}, kManyTokens);
  EXPECT_EQ(plan.n_tokens, 1225);
  const Tensor patches = p({&image, 1}, plan, nullptr);
  EXPECT_EQ(patches.shape(), (Shape{4900, 1176}));
  EXPECT_EQ(patches.f32()[0], patches.f32()[patches.view().numel() - 1 - 2 * 392]);
}

TEST(Qwen2Processor, LimitsInEachPublishedForm) {
  for (const char* config :
       {R"({"min_pixels": 6272, "max_pixels": 7840})",
        R"({"size": {"shortest_edge": 6272, "longest_edge": 7840}})",
        R"({"size": {"min_pixels": 6272, "max_pixels": 7840}})",
        R"({"size": {"shortest_edge": 1, "longest_edge": 2}, "min_pixels": 6272, "max_pixels": 7840})"}) {
    const Qwen2ImageProcessor p = processor(config);
    EXPECT_EQ(p.limits().min_pixels, 6272) << config;
    EXPECT_EQ(p.limits().max_pixels, 7840) << config;
  }
  EXPECT_EQ(processor("{}").limits().min_pixels, 3136);
  EXPECT_EQ(processor("{}").limits().max_pixels, 1003520);
  const auto video = Qwen2ImageProcessor::for_videos(std::nullopt, {});
  EXPECT_EQ(video.limits().min_pixels, 100352);
  EXPECT_EQ(video.limits().max_pixels, 602112);
}

TEST(Qwen2Processor, BadConfigurationsAreRefused) {
  for (const char* config :
       {R"({"min_pixels": 0})", R"({"min_pixels": -1})", R"({"max_pixels": 1e30})", R"({"size": 5})",
        R"({"size": {"longest_edge": 0}})", R"({"patch_size": 16})", R"({"merge_size": 1})",
        R"({"temporal_patch_size": 1})", R"({"image_std": [0, 1, 1]})", R"({"resample": 9})",
        R"({"max_pixels": "many"})"})
    EXPECT_THROW(processor(config), Error) << config;
}

TEST(Qwen2Processor, UserLimits) {
  const Qwen2ImageProcessor p = processor();
  const MediaMeta meta{.width_px = 640, .height_px = 480};
  EXPECT_EQ(p.plan(meta, {}, kManyTokens).n_tokens, 391);
  EXPECT_LE(p.plan(meta, {.min_pixels = 0, .max_pixels = 78400}, kManyTokens).n_tokens, 100);
  EXPECT_GE(p.plan(meta, {.min_pixels = 784000, .max_pixels = 0}, kManyTokens).n_tokens, 1000);
  EXPECT_EQ(p.plan(meta, {.min_pixels = 0, .max_pixels = 1}, kManyTokens).n_tokens, 1);
  EXPECT_THROW(p.plan(meta, {.min_pixels = 2000, .max_pixels = 1000}, kManyTokens), Error);
  EXPECT_THROW(p.plan(meta, {.min_pixels = -5, .max_pixels = 0}, kManyTokens), Error);
  EXPECT_THROW(p.plan(meta, {.min_pixels = std::int64_t{1} << 41, .max_pixels = 0}, kManyTokens), Error);
}

// More tokens than the context holds: refused before any memory is taken, with both numbers.
TEST(Qwen2Processor, MoreTokensThanTheContext) {
  const Qwen2ImageProcessor p = processor();
  const auto expect_context_error = [&](const MediaMeta& meta, const MediaOptions& options,
                                        const char* what) {
    try {
      p.plan(meta, options, 4096);
      FAIL() << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kContextLength);
      EXPECT_THAT(error.what(), HasSubstr("4096"));
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  };
  expect_context_error({.width_px = 8000, .height_px = 8000}, {}, "16384 tokens");
  expect_context_error({.width_px = 10, .height_px = 10},
                       {.min_pixels = std::int64_t{1} << 40, .max_pixels = 0}, "10x10");
  expect_context_error(
      {.width_px = 640, .height_px = 480, .n_frames = 2000000000, .frames_per_s = 30, .is_video = true}, {},
      "2000000000 frames");
}

TEST(Qwen2Processor, FramesMayShareABudget) {
  const Json json = Json::parse(
      R"({"size": {"shortest_edge": 3136, "longest_edge": 602112}, "cap_pixels_per_frame": true, "max_video_tokens": 1000})");
  const auto p = Qwen2ImageProcessor::for_videos(JsonView(json, "video_preprocessor_config.json"), {});
  MediaMeta meta{.width_px = 640, .height_px = 480, .n_frames = 10, .frames_per_s = 2, .is_video = true};
  // 1000 tokens * 784 pixels * 0.9 = 705600; times 2, by 10 frames: 141120 pixels a frame.
  MediaPlan plan = p.plan(meta, {}, kManyTokens);
  EXPECT_LE(plan.resized_width_px * plan.resized_height_px, 141120);
  EXPECT_GT(plan.resized_width_px * plan.resized_height_px, 100000);
  meta.n_frames = 100000;  // never below 1.05 times the least
  plan = p.plan(meta, {}, std::int64_t{1} << 30);
  EXPECT_LE(plan.resized_width_px * plan.resized_height_px, 3292);
}

TEST(Qwen2Processor, LimitsOfAWholeVideo) {
  const Qwen2ImageProcessor::Geometry tower{.patch_size_px = 16};
  const auto plan_of = [&](const char* config, int n_frames) {
    const Json json = Json::parse(config);
    const auto p =
        Qwen2ImageProcessor::for_qwen3_videos(JsonView(json, "video_preprocessor_config.json"), tower);
    return p.plan(
        {.width_px = 640, .height_px = 480, .n_frames = n_frames, .frames_per_s = 2, .is_video = true}, {},
        std::int64_t{1} << 30);
  };
  constexpr const char* kFile = R"({"size": {"shortest_edge": 4096, "longest_edge": 3072000}})";
  EXPECT_EQ(plan_of(kFile, 10).resized_width_px, 640);  // 10 * 640 * 480
  EXPECT_EQ(plan_of(R"({"size": {"shortest_edge": 4096, "longest_edge": 3072000}, "max_pixels": 100000})", 10)
                .resized_width_px,
            640);
  EXPECT_EQ(plan_of(kFile, 40).resized_width_px, 320);
  EXPECT_EQ(plan_of(kFile, 40).resized_height_px, 224);
  // A frame has at most 100 tokens of 32 x 32, or the share of the whole, never below 1.05 times the least.
  constexpr const char* kCapped = R"({"size": {"shortest_edge": 4096, "longest_edge": 3072000},
      "cap_pixels_per_frame": true, "max_video_tokens": 100})";
  const auto area = [](const MediaPlan& plan) { return plan.resized_width_px * plan.resized_height_px; };
  EXPECT_LE(area(plan_of(kCapped, 2)), 102400);
  EXPECT_GT(area(plan_of(kCapped, 2)), 80000);
  EXPECT_LE(area(plan_of(kCapped, 2000)), 4300);
  const auto defaults = Qwen2ImageProcessor::for_qwen3_videos(std::nullopt, tower);
  EXPECT_EQ(defaults.limits().min_pixels, 131072);
  EXPECT_EQ(defaults.limits().max_pixels, 786432);
  EXPECT_TRUE(defaults.video_sampling().to_the_end);
  Image white{64, 64, PoolVector<std::uint8_t>(64 * 64 * 3, 255)};
  const MediaPlan plan = defaults.plan(
      {.width_px = 64, .height_px = 64, .n_frames = 1, .frames_per_s = 2, .is_video = true}, {}, kManyTokens);
  EXPECT_FLOAT_EQ(defaults({&white, 1}, plan, nullptr).f32()[0], 1.0F);  // mean and standard deviation 0.5
}

TEST(Qwen2Processor, WithoutResizingSidesMustFit) {
  const Qwen2ImageProcessor p = processor(R"({"do_resize": false})");
  EXPECT_EQ(p.plan({.width_px = 56, .height_px = 84}, {}, kManyTokens).n_tokens, 6);
  EXPECT_THROW(p.plan({.width_px = 57, .height_px = 84}, {}, kManyTokens), Error);
}

// Sampled values of the reference's Pillow processor, six digits each.
TEST(Qwen2Processor, ReferencePixels) {
  TRIPTYCH_SHARED_OR_SKIP(folder, "golden/images");
  std::ifstream file(folder / "golden.json");
  const Json golden = Json::parse(file);
  int n = 0;
  double worst = 0;
  for (const Json& entry : golden.at("processors")) {
    const auto name = entry.at("processor").get<std::string>();
    if (!name.starts_with("qwen2_vl")) continue;
    const Qwen2ImageProcessor p =
        name == "qwen2_vl" ? processor() : processor(R"({"min_pixels": 200704, "max_pixels": 1003520})");
    const auto picture = entry.at("file").get<std::string>();
    const Image image = decode_image(MappedFile::open(folder / "files" / picture)->bytes(), {}, picture);
    const MediaPlan plan =
        p.plan({.width_px = image.width_px, .height_px = image.height_px}, {}, kManyTokens);
    const Tensor pixels = p({&image, 1}, plan, nullptr);
    EXPECT_EQ(entry.at("image_grid_thw").at(0), (Json{plan.grid_t, plan.grid_h, plan.grid_w})) << picture;
    ASSERT_EQ(entry.at("shape"), (Json{pixels.view().dim(0), pixels.view().dim(1)})) << picture;
    const auto indices = entry.at("indices").get<std::vector<std::int64_t>>();
    for (std::size_t i = 0; i < indices.size(); ++i)
      worst = std::max(worst, std::fabs(static_cast<double>(pixels.f32()[indices[i]]) -
                                        entry.at("values").at(i).get<double>()));
    double sum = 0;
    for (std::int64_t i = 0; i < pixels.view().numel(); ++i) sum += static_cast<double>(pixels.f32()[i]);
    EXPECT_NEAR(sum / static_cast<double>(pixels.view().numel()), entry.at("mean").get<double>(), 1e-6)
        << picture;
    ++n;
  }
  EXPECT_EQ(n, 9);
  EXPECT_LE(worst, 6e-7);  // the file's rounding
}

}  // namespace
}  // namespace triptych
