// A font of 5 x 7 pixels for labels on pictures: digits, capitals and a few marks; small letters become
// capitals.
#pragma once

#include <array>
#include <cstdint>

namespace triptych {

inline constexpr int kGlyphWidthPx = 5;
inline constexpr int kGlyphHeightPx = 7;

/// Rows from the top; bit 4 is the leftmost pixel.
using Glyph = std::array<std::uint8_t, kGlyphHeightPx>;

/// The glyph of an ASCII character, or null.
const Glyph* find_glyph(char character) noexcept;

}  // namespace triptych
