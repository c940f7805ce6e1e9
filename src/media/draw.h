// Drawing of regions on a picture.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "media/image.h"
#include "media/region.h"

namespace triptych {

/// The colour of the index-th region; eight colours in turn.
Rgb8 region_colour(std::size_t index) noexcept;

/// Draws outlines in the regions' colours, thicker on larger pictures, and beside each its number (from 1)
/// and its label in capitals. A label with characters that the built-in font lacks (it has ASCII letters,
/// digits and a few marks) is left out, its number is not. What lies outside the picture is cut off.
void draw_regions(Image& image, std::span<const Region> regions);

/// Whether the built-in font has every character of a text (UTF-8).
bool can_draw_text(std::string_view text) noexcept;

}  // namespace triptych
