// EXIF 2.32 section 4.6.4 (tag 0x0112) and the TIFF 6.0 directory layout. Like Pillow's exif_transpose, XMP's
// tiff:Orientation counts when EXIF says nothing.
#include "media/codecs/orientation.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "media/codecs/bytes.h"

namespace triptych::codec {
namespace {

constexpr std::uint16_t kOrientationTag = 0x0112;
constexpr std::uint16_t kShort = 3;
constexpr std::uint16_t kLong = 4;

int valid(std::uint32_t value) noexcept { return value >= 1 && value <= 8 ? static_cast<int>(value) : 0; }

int orientation_in_directory(const Bytes& tiff) {
  const bool is_big = tiff.starts_with(0, "MM");
  if (!is_big && !tiff.starts_with(0, "II")) return 0;
  const std::uint64_t directory = tiff.u32(4, is_big);
  const std::uint16_t n_entries = tiff.u16(directory, is_big);
  for (std::uint64_t i = 0; i < n_entries; ++i) {
    const std::uint64_t entry = directory + 2 + i * 12;
    if (tiff.u16(entry, is_big) != kOrientationTag) continue;
    const std::uint16_t type = tiff.u16(entry + 2, is_big);
    if (tiff.u32(entry + 4, is_big) != 1) return 0;
    if (type == kShort) return valid(tiff.u16(entry + 8, is_big));
    if (type == kLong) return valid(tiff.u32(entry + 8, is_big));
    return 0;
  }
  return 0;
}

}  // namespace

int exif_orientation(std::span<const std::byte> exif) noexcept {
  try {
    const Bytes bytes(exif);
    constexpr std::string_view kPrefix("Exif\0\0", 6);
    const std::size_t start = bytes.starts_with(0, kPrefix) ? kPrefix.size() : 0;
    return orientation_in_directory(Bytes(exif.subspan(start)));
  } catch (const OutOfBytes&) {
    return 0;
  }
}

int raw_profile_orientation(std::string_view text) noexcept {
  for (int line = 0; line < 3; ++line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return 0;
    text.remove_prefix(end + 1);
  }
  std::vector<std::byte> exif;
  int high = -1;  // digit
  for (const char c : text) {
    int digit = 0;
    if (c >= '0' && c <= '9')
      digit = c - '0';
    else if (c >= 'a' && c <= 'f')
      digit = c - 'a' + 10;
    else if (c >= 'A' && c <= 'F')
      digit = c - 'A' + 10;
    else if (c == '\n' || c == '\r' || c == ' ' || c == '\t')
      continue;
    else
      return 0;
    if (high >= 0) exif.push_back(static_cast<std::byte>(high << 4 | digit));
    high = high >= 0 ? -1 : digit;
  }
  return high >= 0 ? 0 : exif_orientation(exif);
}

int xmp_orientation(std::span<const std::byte> xmp) noexcept {
  const std::string_view text(reinterpret_cast<const char*>(xmp.data()), xmp.size());
  constexpr std::string_view kName = "tiff:Orientation";
  for (std::size_t at = text.find(kName); at != std::string_view::npos; at = text.find(kName, at + 1)) {
    std::string_view rest = text.substr(at + kName.size());
    if (rest.starts_with("=\""))
      rest.remove_prefix(2);
    else if (rest.starts_with(">"))
      rest.remove_prefix(1);
    else
      continue;
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9')
      return valid(static_cast<std::uint32_t>(rest[0] - '0'));
  }
  return 0;
}

Image apply_orientation(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  // Orientation as flips of the stored picture, after exchanging the axes for 5..8.
  const bool transpose = swaps_sides(orientation);
  const bool flip_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool flip_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Image out{transpose ? image.height_px : image.width_px, transpose ? image.width_px : image.height_px, {}};
  out.rgb.resize(image.rgb.size());
  const auto width = static_cast<std::size_t>(out.width_px);
  const auto height = static_cast<std::size_t>(out.height_px);
  // Step in the stored picture for one step right in the result, in bytes.
  const std::size_t step = transpose ? image.row_bytes() : 3;
  const std::size_t row_step = transpose ? 3 : image.row_bytes();
  for (std::size_t y = 0; y < height; ++y) {
    const std::uint8_t* row = image.rgb.data() + (flip_y ? height - 1 - y : y) * row_step;
    std::uint8_t* to = out.rgb.data() + y * out.row_bytes();
    for (std::size_t x = 0; x < width; ++x, to += 3) {
      const std::uint8_t* from = row + (flip_x ? width - 1 - x : x) * step;
      to[0] = from[0];
      to[1] = from[1];
      to[2] = from[2];
    }
  }
  return out;
}

}  // namespace triptych::codec
