// Which pixels change when regions are drawn.
#include "media/draw.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "media/tiny_font.h"

namespace triptych {
namespace {

Image grey(int width, int height) {
  return {width, height, PoolVector<std::uint8_t>(static_cast<std::size_t>(width * height * 3), 128)};
}

Rgb8 at(const Image& image, int x, int y) {
  const std::uint8_t* px =
      image.rgb.data() + static_cast<std::size_t>(y) * image.row_bytes() + static_cast<std::size_t>(x) * 3;
  return {px[0], px[1], px[2]};
}

Region box(int x0, int y0, int x1, int y1, std::string label = "") {
  return {.kind = RegionKind::kBox,
          .label = std::move(label),
          .media_index = 0,
          .points_1000 = {},
          .points_px = {{x0, y0}, {x1, y1}}};
}

constexpr Rgb8 kUntouched{128, 128, 128};

TEST(Draw, ABoxIsAnOutlineOfItsColour) {
  Image image = grey(100, 80);
  const Region regions[] = {box(20, 30, 60, 50)};
  draw_regions(image, regions);
  const Rgb8 colour = region_colour(0);
  for (int x = 20; x <= 60; ++x) {
    EXPECT_EQ(at(image, x, 30), colour) << x;
    EXPECT_EQ(at(image, x, 50), colour) << x;
  }
  for (int y = 30; y <= 50; ++y) {
    EXPECT_EQ(at(image, 20, y), colour) << y;
    EXPECT_EQ(at(image, 60, y), colour) << y;
  }
  EXPECT_EQ(at(image, 40, 40), kUntouched);  // inside
  EXPECT_EQ(at(image, 61, 51), kUntouched);  // outside
  EXPECT_EQ(at(image, 19, 40), kUntouched);
  EXPECT_EQ(at(image, 40, 29), kUntouched);  // beside the plate with the number
  EXPECT_NE(at(image, 21, 25), kUntouched);  // the plate above the corner
}

TEST(Draw, ABoxTurnedRoundIsTheSameBox) {
  Image a = grey(50, 50), b = grey(50, 50);
  const Region one[] = {box(10, 20, 30, 40)}, other[] = {box(30, 40, 10, 20)};
  draw_regions(a, one);
  draw_regions(b, other);
  EXPECT_EQ(a, b);
}

TEST(Draw, RegionsHaveNumbersAndColoursOfTheirOwn) {
  Image image = grey(200, 200);
  const Region regions[] = {box(10, 20, 60, 60), box(100, 20, 160, 60)};
  draw_regions(image, regions);
  EXPECT_EQ(at(image, 60, 60), region_colour(0));
  EXPECT_EQ(at(image, 160, 60), region_colour(1));
  EXPECT_FALSE(region_colour(0) == region_colour(1));
  EXPECT_EQ(region_colour(0), region_colour(8));
}

// The plate of a label: its background and, row by row, the pixels of its glyphs.
TEST(Draw, LabelsAreWrittenInTheBuiltInFont) {
  Image image = grey(150, 100);
  const Region regions[] = {box(10, 40, 60, 80, "star")};
  draw_regions(image, regions);
  const std::string text = "1 STAR";
  const int top = 40 - (kGlyphHeightPx + 2) + 1;
  for (std::size_t i = 0; i < text.size(); ++i)
    for (int row = 0; row < kGlyphHeightPx; ++row)
      for (int col = 0; col < kGlyphWidthPx; ++col) {
        const bool inked = (((*find_glyph(text[i]))[static_cast<std::size_t>(row)] >> (4 - col)) & 1) != 0;
        const Rgb8 px = at(image, 11 + static_cast<int>(i) * (kGlyphWidthPx + 1) + col, top + row);
        EXPECT_EQ(px, inked ? kWhite : region_colour(0)) << text[i] << row << col;
      }
}

TEST(Draw, ALabelTheFontLacksLeavesItsNumber) {
  EXPECT_TRUE(can_draw_text("a Red-Car, 2.0"));
  EXPECT_FALSE(can_draw_text("\xE7\x8B\x97"));
  Image with = grey(100, 100), without = grey(100, 100);
  const Region named[] = {box(20, 40, 60, 80, "\xE7\x8B\x97")}, unnamed[] = {box(20, 40, 60, 80)};
  draw_regions(with, named);
  draw_regions(without, unnamed);
  EXPECT_EQ(with, without);
}

TEST(Draw, QuadsAndPoints) {
  Image image = grey(100, 100);
  const Region regions[] = {{.kind = RegionKind::kQuad,
                             .label = "",
                             .media_index = 0,
                             .points_1000 = {},
                             .points_px = {{50, 20}, {80, 50}, {50, 80}, {20, 50}}},
                            {.kind = RegionKind::kPoint,
                             .label = "",
                             .media_index = 0,
                             .points_1000 = {},
                             .points_px = {{50, 50}}}};
  draw_regions(image, regions);
  for (const auto& [x, y] : {std::pair(65, 35), std::pair(65, 65), std::pair(35, 65), std::pair(35, 35)})
    EXPECT_EQ(at(image, x, y), region_colour(0)) << x << "," << y;
  EXPECT_EQ(at(image, 50, 50), region_colour(1));
  EXPECT_EQ(at(image, 53, 50), region_colour(1));
  EXPECT_EQ(at(image, 50, 53), region_colour(1));
  EXPECT_EQ(at(image, 56, 56), kUntouched);
}

TEST(Draw, AnyBoxOnAnyPicture) {
  const int coordinates[] = {-2'000'000'000, -1, 0, 1, 17, 40, 2'000'000'000};
  for (const auto& [width, height] : {std::pair(1, 1), std::pair(1, 40), std::pair(40, 1), std::pair(17, 23)})
    for (const int x0 : coordinates)
      for (const int y0 : coordinates)
        for (const int x1 : coordinates) {
          Image image = grey(width, height);
          const Region regions[] = {box(x0, y0, x1, 3, "a label that is longer than the picture is wide")};
          draw_regions(image, regions);
          EXPECT_NE(image, grey(width, height));
          EXPECT_EQ(image.rgb.size(), static_cast<std::size_t>(width * height * 3));
        }
  Image none;
  EXPECT_THROW(draw_regions(none, {}), Error);
}

TEST(TinyFont, EveryLetterAndDigitLooksDifferent) {
  std::set<Glyph> seen;
  for (const char c : std::string("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ .,-:'/?!&()+%#_")) {
    ASSERT_NE(find_glyph(c), nullptr) << c;
    EXPECT_TRUE(seen.insert(*find_glyph(c)).second) << c;
    for (const std::uint8_t row : *find_glyph(c)) EXPECT_LT(row, 32);
  }
  EXPECT_EQ(find_glyph('q'), find_glyph('Q'));
  EXPECT_EQ(find_glyph('\xE7'), nullptr);
  EXPECT_EQ(find_glyph('\n'), nullptr);
}

}  // namespace
}  // namespace triptych
