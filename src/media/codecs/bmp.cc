// Windows and OS/2 bitmaps (BITMAPCOREHEADER to BITMAPV5HEADER): 1, 4, 8 bits with a palette, also run-length
// coded; 16, 24, 32 bits, also with any bit masks. Own parser: no packaged library reads these from memory
// with limits, and the format is a fixed header and rows. Layout as in the Windows GDI documentation of these
// structures.
//
// As in Pillow: the fourth byte of plain 32-bit pixels is ignored, a mask for alpha is honoured; pixels that
// run-length data skips have index 0; a field of n bits is spread as value * 255 / (2^n - 1), truncated.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "media/codecs/bytes.h"
#include "media/codecs/codec.h"
#include "media/codecs/pixels.h"

namespace triptych::codec {
namespace {

enum Compression : std::uint32_t { kRgb = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3, kAlphaBitFields = 6 };

bool matches(std::span<const std::byte> bytes) { return Bytes(bytes).starts_with(0, "BM"); }

// One colour field of a 16- or 32-bit pixel.
struct Field {
  std::uint32_t mask = 0;

  unsigned value(std::uint32_t pixel) const {
    const int shift = std::countr_zero(mask);
    const std::uint32_t top = mask >> shift;
    const std::uint64_t raw = (pixel & mask) >> shift;
    return static_cast<unsigned>(raw * 255 / top);
  }
  bool is_valid() const {
    return mask != 0 && std::has_single_bit(std::uint64_t{mask >> std::countr_zero(mask)} + 1);
  }
};

struct Layout {
  std::uint32_t width = 0, height = 0;
  bool is_top_down = false;
  unsigned bits = 0;
  std::uint32_t compression = kRgb;
  std::array<Field, 4> fields{};  // R, G, B, A; a mask of 0 for alpha means none
  std::array<Rgb8, 256> palette{};
  std::uint64_t pixels_at = 0;
  std::uint64_t row_bytes() const { return (std::uint64_t{width} * bits + 31) / 32 * 4; }
};

class BmpReader {
 public:
  explicit BmpReader(const Source& source) : source_(source), bytes_(source.bytes) { read_header(); }
  const Layout& layout() const { return layout_; }
  Image decode() const;

 private:
  [[noreturn]] void damaged(std::string_view fault) const { fail_damaged(source_, ImageFormat::kBmp, fault); }
  void read_header();
  void read_masks(std::uint32_t header_bytes);
  void read_palette(std::uint64_t at, std::uint32_t n, std::size_t entry_bytes);
  bool any_alpha() const;
  void read_row(const std::uint8_t* from, bool has_alpha, std::uint8_t* to) const;
  std::vector<std::uint8_t> read_runs() const;

  const Source& source_;
  Bytes bytes_;
  Layout layout_;
};

void BmpReader::read_header() {
  Layout& l = layout_;
  const std::uint32_t header_bytes = bytes_.u32(14, false);
  const bool is_core = header_bytes == 12;
  if (!is_core && header_bytes != 40 && header_bytes != 52 && header_bytes != 56 && header_bytes != 64 &&
      header_bytes != 108 && header_bytes != 124)
    fail_unsupported(source_, ImageFormat::kBmp, fmt::format("a header of {} bytes", header_bytes));
  l.pixels_at = bytes_.u32(10, false);
  std::uint32_t n_colours = 0;
  if (is_core) {
    l.width = bytes_.u16(18, false);
    l.height = bytes_.u16(20, false);
    l.bits = bytes_.u16(24, false);
  } else {
    const auto width = static_cast<std::int32_t>(bytes_.u32(18, false));
    const auto height = static_cast<std::int32_t>(bytes_.u32(22, false));
    if (width < 0) damaged("a negative width");
    l.width = static_cast<std::uint32_t>(width);
    l.is_top_down = height < 0;
    l.height = l.is_top_down ? 0U - static_cast<std::uint32_t>(height) : static_cast<std::uint32_t>(height);
    l.bits = bytes_.u16(28, false);
    l.compression = bytes_.u32(30, false);
    n_colours = bytes_.u32(46, false);
  }
  check_size(source_, ImageFormat::kBmp, l.width, l.height);
  if (l.bits != 1 && l.bits != 4 && l.bits != 8 && l.bits != 16 && l.bits != 24 && l.bits != 32)
    fail_unsupported(source_, ImageFormat::kBmp, fmt::format("{} bits per pixel", l.bits));
  const bool has_masks =
      (l.compression == kBitFields || l.compression == kAlphaBitFields) && (l.bits == 16 || l.bits == 32);
  const bool is_known = l.compression == kRgb || has_masks || (l.compression == kRle8 && l.bits == 8) ||
                        (l.compression == kRle4 && l.bits == 4);
  if (!is_known || (has_masks && header_bytes == 64))
    fail_unsupported(source_, ImageFormat::kBmp,
                     fmt::format("compression {} with {} bits", l.compression, l.bits));
  if (has_masks) read_masks(header_bytes);
  if (l.compression == kRgb && l.bits == 16)
    l.fields = {Field{0x7C00}, Field{0x03E0}, Field{0x001F}, Field{0}};
  if (l.compression == kRgb && l.bits == 32)
    l.fields = {Field{0xFF0000}, Field{0xFF00}, Field{0xFF}, Field{0}};
  if (l.bits <= 8) {
    const std::uint32_t most = 1U << l.bits;
    read_palette(14 + std::uint64_t{header_bytes}, n_colours == 0 ? most : std::min(n_colours, most),
                 is_core ? 3 : 4);
  }
  const bool is_coded = l.compression == kRle8 || l.compression == kRle4;
  const std::uint64_t last_row = (std::uint64_t{l.width} * l.bits + 7) / 8;  // its padding may be missing
  const std::uint64_t needed = is_coded ? 0 : l.row_bytes() * (l.height - 1) + last_row;
  // Two bytes are a run of 255 pixels at most. Jumps over pixels could be longer, which only a hostile file
  // makes of them.
  if (is_coded)
    check_ratio(source_, ImageFormat::kBmp, std::uint64_t{l.width} * l.height, source_.bytes.size(), 128);
  if (!bytes_.has(l.pixels_at, needed))
    damaged(fmt::format("the file is truncated: {} x {} pixels need {} bytes from byte {}, the file has {}",
                        l.width, l.height, needed, l.pixels_at, bytes_.size()));
}

void BmpReader::read_masks(std::uint32_t header_bytes) {
  // Inside the larger headers, behind the small one: the same place.
  const bool has_alpha = header_bytes >= 56 || layout_.compression == kAlphaBitFields;
  for (std::size_t i = 0; i < (has_alpha ? 4 : 3); ++i) {
    layout_.fields[i].mask = bytes_.u32(54 + 4 * i, false);
    if (!layout_.fields[i].is_valid() && !(i == 3 && layout_.fields[i].mask == 0))
      damaged(fmt::format("bit mask {:#010x} is not a run of bits", layout_.fields[i].mask));
  }
}

void BmpReader::read_palette(std::uint64_t at, std::uint32_t n, std::size_t entry_bytes) {
  for (std::size_t i = 0; i < n; ++i, at += entry_bytes)
    layout_.palette[i] = {bytes_.u8(at + 2), bytes_.u8(at + 1), bytes_.u8(at)};
}

// Programs that copy a screen leave the alpha of all pixels 0 and mean opaque ones.
bool BmpReader::any_alpha() const {
  const Layout& l = layout_;
  if (l.fields[3].mask == 0) return false;
  const std::size_t n = l.bits / 8;
  for (std::uint32_t y = 0; y < l.height; ++y) {
    const std::uint8_t* from = source_.data() + l.pixels_at + y * l.row_bytes();
    for (std::uint32_t x = 0; x < l.width; ++x) {
      std::uint32_t pixel = 0;
      for (std::size_t i = n; i-- > 0;) pixel = pixel << 8 | from[n * x + i];
      if ((pixel & l.fields[3].mask) != 0) return true;
    }
  }
  return false;
}

void BmpReader::read_row(const std::uint8_t* from, bool has_alpha, std::uint8_t* to) const {
  const Layout& l = layout_;
  for (std::uint32_t x = 0; x < l.width; ++x, to += 3) {
    if (l.bits <= 8) {
      const unsigned per_byte = 8 / l.bits;
      const unsigned index = from[x / per_byte] >> (8 - l.bits * (x % per_byte + 1)) & ((1U << l.bits) - 1);
      put_rgb(to, l.palette[index].r, l.palette[index].g, l.palette[index].b);
    } else if (l.bits == 24) {
      put_rgb(to, from[3 * x + 2], from[3 * x + 1], from[3 * x]);
    } else {
      const std::size_t n = l.bits / 8;
      std::uint32_t pixel = 0;
      for (std::size_t i = n; i-- > 0;) pixel = pixel << 8 | from[n * x + i];
      put_rgb(to, l.fields[0].value(pixel), l.fields[1].value(pixel), l.fields[2].value(pixel));
      if (l.fields[3].mask == 0 || !has_alpha) continue;
      const unsigned alpha = l.fields[3].value(pixel);
      put_rgb(to, over(to[0], alpha, source_.background.r), over(to[1], alpha, source_.background.g),
              over(to[2], alpha, source_.background.b));
    }
  }
}

// Run-length codes to one index per pixel, rows in file order. Runs are cut at the end of a row.
std::vector<std::uint8_t> BmpReader::read_runs() const {
  const Layout& l = layout_;
  const bool is_4_bit = l.compression == kRle4;
  std::vector<std::uint8_t> indices(std::size_t{l.width} * l.height);
  std::uint64_t at = l.pixels_at;
  std::uint64_t x = 0, y = 0;
  const auto put = [&](unsigned index) {
    if (x < l.width && y < l.height)
      indices[static_cast<std::size_t>(y * l.width + x)] = static_cast<std::uint8_t>(index);
    ++x;
  };
  const auto nibble = [&](unsigned byte, unsigned i) {
    return is_4_bit ? (i % 2 == 0 ? byte >> 4 : byte & 15) : byte;
  };
  while (y < l.height) {
    if (y + 1 == l.height && x >= l.width && !bytes_.has(at, 2))
      break;  // complete, only the end code is missing
    const unsigned count = bytes_.u8(at);
    const unsigned code = bytes_.u8(at + 1);
    at += 2;
    if (count > 0) {
      for (unsigned i = 0; i < count; ++i) put(nibble(code, i));
    } else if (code == 0) {
      x = 0;
      ++y;
    } else if (code == 1) {
      break;
    } else if (code == 2) {
      x += bytes_.u8(at);
      y += bytes_.u8(at + 1);
      at += 2;
    } else {
      const std::uint64_t n_bytes = is_4_bit ? (code + 1) / 2 : code;
      bytes_.part(at, n_bytes);
      for (unsigned i = 0; i < code; ++i) put(nibble(bytes_.u8(at + (is_4_bit ? i / 2 : i)), i));
      at += n_bytes + (n_bytes & 1);
    }
  }
  return indices;
}

Image BmpReader::decode() const {
  const Layout& l = layout_;
  Image image = make_image(source_, ImageFormat::kBmp, l.width, l.height);
  const auto place = [&](std::uint32_t row) {
    return image.rgb.data() + std::size_t{l.is_top_down ? row : l.height - 1 - row} * image.row_bytes();
  };
  if (l.compression == kRle8 || l.compression == kRle4) {
    const std::vector<std::uint8_t> indices = read_runs();
    const std::uint8_t* from = indices.data();
    for (std::uint32_t y = 0; y < l.height; ++y) {
      std::uint8_t* to = place(y);
      for (std::uint32_t x = 0; x < l.width; ++x, to += 3, ++from)
        put_rgb(to, l.palette[*from].r, l.palette[*from].g, l.palette[*from].b);
    }
    return image;
  }
  const std::uint8_t* row = source_.data() + l.pixels_at;
  const bool has_alpha = any_alpha();
  for (std::uint32_t y = 0; y < l.height; ++y) read_row(row + y * l.row_bytes(), has_alpha, place(y));
  return image;
}

Header probe(const Source& source) try {
  const Layout layout = BmpReader(source).layout();
  return {static_cast<int>(layout.width), static_cast<int>(layout.height), 1, layout.fields[3].mask != 0,
          false};
} catch (const OutOfBytes&) {
  fail_damaged(source, ImageFormat::kBmp, "the file is truncated");
}

Image decode(const Source& source) try { return BmpReader(source).decode(); } catch (const OutOfBytes&) {
  fail_damaged(source, ImageFormat::kBmp, "the file is truncated");
}

}  // namespace

const Codec kBmp{ImageFormat::kBmp, matches, probe, decode};

}  // namespace triptych::codec
