// Pictures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "triptych/export.h"
#include "triptych/region.h"

namespace triptych::api {

/// An 8-bit RGB picture. Copies share the pixels, which never change, so any thread may read them. There is
/// no empty picture: a moved-from Image is a copy.
class TRIPTYCH_API Image {
 public:
  /// Reads and decodes a file: PNG, JPEG, WebP, GIF and TIFF (their first frame), BMP or PNM, recognised by
  /// its bytes. EXIF orientation is applied, transparent pixels are laid over white. Throws Error naming the
  /// file: kNotFound, kIo, kInvalidFile (damaged, or no picture), kUnsupported, kInvalidArgument (over 64
  /// MiB, 64 million pixels or 65535 a side).
  static Image from_file(const std::string& path);
  /// The same from the bytes of a file; `name` stands in errors.
  static Image decode(std::span<const std::byte> bytes, const std::string& name = "picture");
  /// Copies rgb [height_px, width_px, 3], rows top to bottom without gaps. Throws Error(kInvalidArgument) for
  /// sides below 1 or above 65535, or another number of bytes.
  static Image from_rgb(int width_px, int height_px, std::span<const std::uint8_t> rgb);

  Image(const Image& other) noexcept;
  Image& operator=(const Image& other) noexcept;
  ~Image();

  int width_px() const noexcept;
  int height_px() const noexcept;
  /// [height_px, width_px, 3], valid as long as a copy of this picture lives.
  std::span<const std::uint8_t> rgb() const noexcept;

  /// A copy with the outlines of regions (in points_px) drawn on it in eight colours, and beside each its
  /// number (from 1) and its label in capitals, where the built-in font has all its characters (ASCII
  /// letters, digits and a few marks).
  Image with_regions(std::span<const Region> regions) const;
  /// The bytes of a PNG file. Throws Error(kInvalidArgument) for sides above 1,000,000.
  std::vector<std::byte> encode_png() const;

 private:
  struct Impl;
  friend struct Access;
  explicit Image(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace triptych::api
