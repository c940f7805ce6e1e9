// EXIF orientation: finding it, and turning a picture upright.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "media/image.h"

namespace triptych::codec {

/// Orientation (1..8) in EXIF data: a TIFF header and its first directory, with or without "Exif\0\0" in
/// front. 0 when there is none or the data is damaged (EXIF never makes a picture unreadable).
int exif_orientation(std::span<const std::byte> exif) noexcept;

/// tiff:Orientation in an XMP packet; 0 when there is none.
int xmp_orientation(std::span<const std::byte> xmp) noexcept;

/// Orientation in EXIF data as ImageMagick writes it into a text chunk of PNG ("Raw profile type exif"):
/// three lines (empty, name, length), then hexadecimal digits. 0 when there is none.
int raw_profile_orientation(std::string_view text) noexcept;

/// True for 5..8, which exchange width and height.
inline bool swaps_sides(int orientation) noexcept { return orientation >= 5 && orientation <= 8; }

/// The picture as it should be seen.
Image apply_orientation(Image image, int orientation);

}  // namespace triptych::codec
