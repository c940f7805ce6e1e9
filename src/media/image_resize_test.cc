#include "media/image_resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>

#include "base/error.h"
#include "base/thread_pool.h"
#include "media/kernels/resize_kernels.h"
#include "media/normalize.h"
#include "media/testing/test_images.h"

namespace triptych {
namespace {

using testing::expect_same;
using testing::image_data;
using testing::IsaScope;
using testing::noise;
using testing::read_images;
using testing::read_json;

Filter filter_named(const std::string& name) {
  for (int code = 0; code <= 5; ++code)
    if (to_string(filter_from_pillow(code)) == name) return filter_from_pillow(code);
  ADD_FAILURE() << name;
  return Filter::kNearest;
}

// Every resize.<filter>.<w>x<h> of a file of expected pixels, from `source`.
void expect_all_resizes(const std::map<std::string, Image>& pixels, const Image& source,
                        std::size_t n_expected) {
  std::size_t n_compared = 0;
  for (const auto& [name, want] : pixels) {
    if (name.rfind("resize.", 0) != 0) continue;
    const std::string filter = name.substr(7, name.find('.', 7) - 7);
    const Image got = resize(source, want.width_px, want.height_px, filter_named(filter));
    expect_same(got, want, 0, name);
    ++n_compared;
  }
  EXPECT_EQ(n_compared, n_expected);
}

TEST(Resize, MatchesPillow) {
  const auto pixels = read_images(image_data() / "pixels.safetensors");
  expect_all_resizes(pixels, pixels.at("decode.rgb.png"), 27);
}

TEST(Resize, MatchesPillowForNearestBoxHammingAndBothPassOrders) {
  const auto pixels = read_images(image_data() / "extra.safetensors");
  expect_all_resizes(pixels, pixels.at("source"), 30);
}

// One row of grey values as a picture of any height.
Image grey_rows(const std::vector<int>& row, int height) {
  Image image{static_cast<int>(row.size()), height, {}};
  for (int y = 0; y < height; ++y)
    for (const int value : row) image.rgb.insert(image.rgb.end(), 3, static_cast<std::uint8_t>(value));
  return image;
}

std::vector<int> first_row(const Image& image) {
  std::vector<int> row;
  for (std::size_t i = 0; i < image.row_bytes(); i += 3) row.push_back(image.rgb[i]);
  return row;
}

TEST(Resize, EnlargesAndShrinksWithAntialiasing) {
  using ::testing::ElementsAre;
  const Image line = grey_rows({64, 64, 64, 192, 64, 64, 64}, 7);
  EXPECT_THAT(first_row(resize(line, 14, 14, Filter::kBicubic)),
              ElementsAre(64, 64, 64, 61, 55, 93, 175, 175, 93, 55, 61, 64, 64, 64));
  EXPECT_THAT(first_row(resize(line, 14, 14, Filter::kBilinear)),
              ElementsAre(64, 64, 64, 64, 64, 96, 160, 160, 96, 64, 64, 64, 64, 64));
  const Image step = grey_rows({64, 64, 64, 64, 64, 64, 64, 64, 192, 192, 192, 192, 192, 192, 192, 192}, 16);
  EXPECT_THAT(first_row(resize(step, 6, 6, Filter::kBicubic)), ElementsAre(64, 62, 73, 183, 194, 192));
  std::vector<int> alternating;
  for (int i = 0; i < 16; ++i) alternating.push_back(i % 2 * 255);
  EXPECT_THAT(first_row(resize(grey_rows(alternating, 1), 4, 1, Filter::kBicubic)),
              ElementsAre(118, 129, 126, 137));
}

TEST(Resize, SameSizeIsIdentity) {
  const Image image = noise(13, 7, 2);
  for (int code = 0; code <= 5; ++code) EXPECT_EQ(resize(image, 13, 7, filter_from_pillow(code)), image);
}

TEST(Resize, KeepsAConstantPicture) {
  const Image grey = grey_rows(std::vector<int>(50, 173), 40);
  for (int code = 1; code <= 5; ++code)
    for (const auto& [w, h] : {std::pair{3, 4}, {49, 41}, {200, 150}, {50, 1}}) {
      const Image got = resize(grey, w, h, filter_from_pillow(code));
      EXPECT_THAT(got.rgb, ::testing::Each(173)) << code << " " << w << "x" << h;
    }
}

TEST(Resize, EveryInstructionSetEqualsTheScalarOne) {
  const IsaScope scope;
  std::uint32_t seed = 0;
  for (const auto& [w, h] :
       {std::pair{1, 1}, {2, 3}, {3, 2}, {5, 33}, {8, 8}, {31, 9}, {32, 17}, {33, 1}, {131, 67}, {257, 40}})
    for (const auto& [ow, oh] : {std::pair{1, 1},
                                 {4, 4},
                                 {7, 5},
                                 {10, 8},
                                 {11, 9},
                                 {21, 64},
                                 {22, 15},
                                 {43, 2},
                                 {64, 16},
                                 {131, 63}})
      for (const Filter filter : {Filter::kBilinear, Filter::kBicubic, Filter::kLanczos}) {
        const Image image = noise(w, h, seed++);
        Image want;
        for (const Isa isa : usable_isas()) {
          set_active_features(isa);
          const Image got = resize(image, ow, oh, filter);
          if (isa == Isa::kScalar) want = got;
          expect_same(got, want, 0,
                      fmt::format("{}x{} -> {}x{} {} {}", w, h, ow, oh, to_string(filter), to_string(isa)));
        }
      }
}

TEST(Resize, ExtremeRatios) {
  const IsaScope scope;
  const Image wide = noise(20000, 2, 4);
  const Image tall = noise(2, 20000, 5);
  std::vector<Image> want;
  for (const Isa isa : usable_isas()) {
    set_active_features(isa);
    const std::vector<Image> got = {
        resize(wide, 1, 1, Filter::kLanczos), resize(wide, 7, 300, Filter::kBicubic),
        resize(tall, 1, 1, Filter::kLanczos), resize(tall, 300, 7, Filter::kBicubic)};
    if (isa == Isa::kScalar) want = got;
    for (std::size_t i = 0; i < want.size(); ++i) expect_same(got[i], want[i], 0, std::to_string(i));
  }
}

TEST(Resize, ResultDoesNotDependOnThreads) {
  const Image image = noise(301, 211, 6);
  for (const auto& [w, h] : {std::pair{97, 64}, {301, 64}, {97, 211}, {400, 300}, {300, 10}}) {
    const Image want = resize(image, w, h, Filter::kBicubic);
    for (const int n_threads : {1, 2, 3, 5}) {
      ThreadPool pool(n_threads);
      expect_same(resize(image, w, h, Filter::kBicubic, &pool), want, 0,
                  fmt::format("{} threads", n_threads));
    }
  }
}

TEST(Resize, APartIsThatPartOfTheWhole) {
  const IsaScope scope;
  for (const Isa isa : usable_isas()) {
    set_active_features(isa);
    std::uint32_t seed = 0;
    for (const auto& [w, h] : {std::pair{1, 1}, {3, 50}, {50, 3}, {61, 43}, {40, 300}})
      for (const auto& [ow, oh] : {std::pair{7, 5}, {64, 64}, {61, 90}, {90, 43}, {61, 43}, {40, 20}})
        for (int code = 0; code <= 5; ++code) {
          const Filter filter = filter_from_pillow(code);
          const Image image = noise(w, h, ++seed);
          const Image whole = resize(image, ow, oh, filter);
          for (const auto& [left, top, part_w, part_h] : {std::tuple{0, 0, ow, oh},
                                                          {0, 0, 1, 1},
                                                          {ow - 1, oh - 1, 1, 1},
                                                          {ow / 3, oh / 4, ow / 2, oh / 2},
                                                          {0, oh / 2, ow, 1},
                                                          {ow / 2, 0, 1, oh}})
            expect_same(resize_part(image, {ow, oh, left, top, part_w, part_h}, filter),
                        crop(whole, left, top, {part_w, part_h}), 0,
                        fmt::format("{}x{} -> {}x{} at {},{} {}x{} {} {}", w, h, ow, oh, left, top, part_w,
                                    part_h, to_string(filter), to_string(isa)));
        }
  }
}

// The whole would have 22 million columns.
TEST(Resize, APartCostsWhatItHolds) {
  const Image line = noise(65535, 1, 3);
  const Image middle = resize_part(line, {65535 * 336, 336, 65535 * 168, 0, 336, 336}, Filter::kBicubic);
  EXPECT_EQ(middle.rgb.size(), 336U * 336 * 3);
  for (int y = 1; y < 336; ++y)  // one row, repeated
    ASSERT_TRUE(std::equal(middle.rgb.begin(), middle.rgb.begin() + 336 * 3,
                           middle.rgb.begin() + static_cast<std::ptrdiff_t>(y) * 336 * 3));
}

TEST(Resize, RefusesUnknownFilterNumbers) {
  EXPECT_THROW(filter_from_pillow(6), Error);
  EXPECT_THROW(filter_from_pillow(-1), Error);
}

// The kernels alone: any column count, any start, and nothing written outside.
namespace rk = resize_kernels;

struct KernelCase {
  Isa isa;
  rk::HorizontalFn horizontal;
  rk::VerticalFn vertical;
};

std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> cases{{Isa::kScalar, rk::horizontal_scalar, rk::vertical_scalar}};
#if defined(__x86_64__)
  if (active_features().has_all(Isa::kAvx2))
    cases.push_back({Isa::kAvx2, rk::horizontal_avx2, rk::vertical_avx2});
  if (active_features().has_all(Isa::kAvx512))
    cases.push_back({Isa::kAvx512, rk::horizontal_avx512, rk::vertical_avx512});
#elif defined(__aarch64__)
  if (active_features().has_all(Isa::kNeon))
    cases.push_back({Isa::kNeon, rk::horizontal_neon, rk::vertical_neon});
#endif
  return cases;
}

// Weights of every size a 22-bit pass can meet, also negative ones and whole 1.0.
struct KernelTaps {
  KernelTaps(int n_out, int count, int n_taps)
      : first(static_cast<std::size_t>(n_out)), counts(first.size(), count) {
    std::uint32_t state = 12345;
    for (std::size_t i = 0; i < first.size(); ++i) {
      first[i] = static_cast<std::int32_t>(i % 3);
      for (int k = 0; k < n_taps; ++k) {
        state = state * 1664525U + 1013904223U;
        const auto weight = static_cast<std::int32_t>(state >> 9) % (1 << 22);
        weights.push_back(k < count ? (k % 3 == 2 ? -weight / 4 : weight / 2) : 0);
      }
    }
    packed.resize(weights.size() * 2);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      packed[i / 4 * 8 + i % 4] = static_cast<std::int16_t>(weights[i] & 4095);
      packed[i / 4 * 8 + i % 4 + 4] = static_cast<std::int16_t>(weights[i] >> 12);
    }
    view = {first.data(), counts.data(), weights.data(), packed.data(), n_out, n_taps};
  }
  std::vector<std::int32_t> first, counts, weights;
  std::vector<std::int16_t> packed;
  rk::Taps view{};
};

TEST(ResizeKernels, VerticalEqualsOracleAtAnyWidthAndStart) {
  for (const auto& kernel : kernel_cases())
    for (const int n_bytes : {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 131, 259})
      for (const int start : {0, 1, 3})
        for (const int count : {1, 2, 3, 4, 5, 7, 8}) {
          const KernelTaps taps(3, count, 8);
          const Image source = noise(100, 12, static_cast<std::uint32_t>(count));
          for (int row = 0; row < 3; ++row) {
            std::vector<std::uint8_t> got(static_cast<std::size_t>(n_bytes) + 80, 0xAA), want = got;
            rk::VerticalArgs args{taps.view, source.rgb.data() + start, 300,
                                  row,       got.data() + 8 + start,    n_bytes};
            kernel.vertical(args);
            args.dst = want.data() + 8 + start;
            rk::vertical_scalar(args);
            ASSERT_EQ(got, want) << to_string(kernel.isa) << " bytes " << n_bytes << " start " << start
                                 << " taps " << count;
          }
        }
}

TEST(ResizeKernels, HorizontalEqualsOracleAtAnyRowCount) {
  for (const auto& kernel : kernel_cases())
    for (int n_rows = 1; n_rows <= rk::kMaxRows; ++n_rows)
      for (const int n_out : {1, 2, 3, 5, 16, 17})
        for (const int count : {1, 3, 4, 5, 8, 11}) {
          const int n_taps = (count + 3) / 4 * 4;
          const KernelTaps taps(n_out, count, n_taps);
          const Image source = noise(40, rk::kMaxRows + 1, static_cast<std::uint32_t>(count));
          const std::size_t stride = static_cast<std::size_t>(n_out) * 3;
          std::vector<std::uint8_t> got(stride * rk::kMaxRows + 16, 0xAA), want = got;
          const auto run = [&](rk::HorizontalFn function, std::vector<std::uint8_t>& out) {
            const std::uint8_t* src[rk::kMaxRows];
            std::uint8_t* dst[rk::kMaxRows];
            for (std::size_t r = 0; r < rk::kMaxRows; ++r) {
              src[r] = source.rgb.data() + r * source.row_bytes() + 1;  // not aligned
              dst[r] = out.data() + 8 + r * stride;  // rows without gaps: no byte may spill
            }
            function({taps.view, src, dst, n_rows});
          };
          run(kernel.horizontal, got);
          run(rk::horizontal_scalar, want);
          ASSERT_EQ(got, want) << to_string(kernel.isa) << " rows " << n_rows << " out " << n_out << " taps "
                               << count;
        }
}

}  // namespace
}  // namespace triptych
