#include "media/draw.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "media/tiny_font.h"

namespace triptych {
namespace {

constexpr std::array<Rgb8, 8> kColours{{{230, 25, 75},
                                        {60, 180, 75},
                                        {0, 130, 200},
                                        {255, 200, 25},
                                        {145, 30, 180},
                                        {70, 220, 230},
                                        {245, 130, 48},
                                        {240, 50, 230}}};
constexpr std::size_t kMaxLabelCharacters = 40;

// Fills [x0, x1) x [y0, y1), as far as the picture reaches.
void fill(Image& image, PointPx from, PointPx to, Rgb8 colour) {
  const int x0 = std::max(from.x, 0), x1 = std::min(to.x, image.width_px);
  const int y0 = std::max(from.y, 0), y1 = std::min(to.y, image.height_px);
  for (int y = y0; y < y1; ++y) {
    std::uint8_t* px =
        image.rgb.data() + static_cast<std::size_t>(y) * image.row_bytes() + static_cast<std::size_t>(x0) * 3;
    for (int x = x0; x < x1; ++x, px += 3) px[0] = colour.r, px[1] = colour.g, px[2] = colour.b;
  }
}

// A line by Bresenham's steps with a square pen.
void draw_line(Image& image, PointPx a, PointPx b, int pen_px, Rgb8 colour) {
  const int dx = std::abs(b.x - a.x), dy = std::abs(b.y - a.y);
  const int step_x = a.x < b.x ? 1 : -1, step_y = a.y < b.y ? 1 : -1;
  const int before = pen_px / 2;
  int error = dx - dy;
  for (;;) {
    const PointPx corner{a.x - before, a.y - before};
    fill(image, corner, {corner.x + pen_px, corner.y + pen_px}, colour);
    if (a == b) return;
    const int twice = 2 * error;
    if (twice > -dy) error -= dy, a.x += step_x;
    if (twice < dx) error += dx, a.y += step_y;
  }
}

// Black or white, whichever stands out.
Rgb8 ink_on(Rgb8 colour) {
  return 299 * colour.r + 587 * colour.g + 114 * colour.b > 140'000 ? kBlack : kWhite;
}

void draw_text(Image& image, PointPx at, std::string_view text, int scale, Rgb8 ink) {
  for (const char c : text) {
    const Glyph* glyph = find_glyph(c);
    for (int row = 0; row < kGlyphHeightPx; ++row)
      for (int col = 0; col < kGlyphWidthPx; ++col) {
        if (((*glyph)[static_cast<std::size_t>(row)] >> (kGlyphWidthPx - 1 - col) & 1) == 0) continue;
        const PointPx corner{at.x + col * scale, at.y + row * scale};
        fill(image, corner, {corner.x + scale, corner.y + scale}, ink);
      }
    at.x += (kGlyphWidthPx + 1) * scale;
  }
}

// A text on a plate of the region's colour above `corner`, below it where the picture ends.
void draw_plate(Image& image, PointPx corner, std::string_view text, int scale, Rgb8 colour) {
  const int width = (static_cast<int>(text.size()) * (kGlyphWidthPx + 1) + 1) * scale;
  const int height = (kGlyphHeightPx + 2) * scale;
  const int x = std::max(0, std::min(corner.x, image.width_px - width));
  const int y = corner.y >= height ? corner.y - height : corner.y;
  fill(image, {x, y}, {x + width, y + height}, colour);
  draw_text(image, {x + scale, y + scale}, text, scale, ink_on(colour));
}

void draw_region(Image& image, const Region& region, std::size_t index) {
  const int side = std::min(image.width_px, image.height_px);
  const int pen_px = std::clamp(side / 160, 1, 16);
  const int scale = std::clamp(side / 200, 1, 12);
  const Rgb8 colour = region_colour(index);
  std::vector<PointPx> points = region.points_px;
  for (PointPx& p : points) {
    p.x = std::clamp(p.x, 0, image.width_px - 1);
    p.y = std::clamp(p.y, 0, image.height_px - 1);
  }
  if (region.kind == RegionKind::kBox && points.size() == 2) {
    const PointPx a = points[0], b = points[1];
    points = {{std::min(a.x, b.x), std::min(a.y, b.y)},
              {std::max(a.x, b.x), std::min(a.y, b.y)},
              {std::max(a.x, b.x), std::max(a.y, b.y)},
              {std::min(a.x, b.x), std::max(a.y, b.y)}};
  }
  if (region.kind == RegionKind::kPoint) {
    const PointPx p = points.front();
    const int arm = 4 * pen_px;
    draw_line(image, {p.x - arm, p.y}, {p.x + arm, p.y}, pen_px, colour);
    draw_line(image, {p.x, p.y - arm}, {p.x, p.y + arm}, pen_px, colour);
  } else {
    for (std::size_t i = 0; i < points.size(); ++i)
      draw_line(image, points[i], points[(i + 1) % points.size()], pen_px, colour);
  }
  std::string text = std::to_string(index + 1);
  if (!region.label.empty() && can_draw_text(region.label))
    text += " " + region.label.substr(0, kMaxLabelCharacters);
  draw_plate(image, points.front(), text, scale, colour);
}

}  // namespace

std::string_view to_string(RegionKind kind) noexcept {
  switch (kind) {
    case RegionKind::kBox:
      return "box";
    case RegionKind::kQuad:
      return "quad";
    case RegionKind::kPoint:
      return "point";
  }
  return "unknown";
}

Rgb8 region_colour(std::size_t index) noexcept { return kColours[index % kColours.size()]; }

bool can_draw_text(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char c) { return find_glyph(c) != nullptr; });
}

void draw_regions(Image& image, std::span<const Region> regions) {
  TRIPTYCH_CHECK(image.width_px > 0 && image.height_px > 0, "no picture to draw on");
  for (std::size_t i = 0; i < regions.size(); ++i)
    if (!regions[i].points_px.empty()) draw_region(image, regions[i], i);
}

}  // namespace triptych
