// PBM, PGM and PPM, plain and raw (P1..P6; netpbm's pbm(5), pgm(5), ppm(5)). Own parser: no packaged library
// reads these from memory with limits, and the format is a header of three numbers.
//
// As in Pillow: samples are value / maxval * 255 in double, rounded half to even; grey with more than 8 bits
// goes through 16 bits first, then (this project's rule) by 1/257. A raw sample over maxval is maxval, a
// plain one is an error.
#include <algorithm>
#include <cmath>

#include "media/codecs/bytes.h"
#include "media/codecs/codec.h"
#include "media/codecs/pixels.h"

namespace triptych::codec {
namespace {

bool is_space(std::uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool matches(std::span<const std::byte> bytes) {
  const Bytes b(bytes);
  return b.has(0, 3) && b.u8(0) == 'P' && b.u8(1) >= '1' && b.u8(1) <= '6' &&
         (is_space(b.u8(2)) || b.u8(2) == '#');
}

// Reads tokens; '#' begins a comment that ends with its line.
class Tokens {
 public:
  Tokens(const Source& source, std::size_t position) : source_(source), position_(position) {}

  std::size_t position() const { return position_; }

  /// A decimal number of at most 9 digits.
  std::uint32_t number() {
    skip_space();
    std::uint32_t value = 0;
    int n_digits = 0;
    for (; !at_end() && here() >= '0' && here() <= '9'; ++position_) {
      if (++n_digits > 9) fail_damaged(source_, ImageFormat::kPnm, "a number of more than 9 digits");
      value = value * 10 + (here() - std::uint32_t{'0'});
    }
    if (n_digits == 0)
      fail_damaged(source_, ImageFormat::kPnm, at_end() ? "the file is truncated" : "expected a number");
    return value;
  }

  /// One digit 0 or 1; plain PBM needs no space between them.
  bool bit() {
    skip_space();
    if (at_end()) fail_damaged(source_, ImageFormat::kPnm, "the file is truncated");
    const std::uint8_t c = here();
    if (c != '0' && c != '1') fail_damaged(source_, ImageFormat::kPnm, "expected 0 or 1");
    ++position_;
    return c == '1';
  }

  /// The single white-space byte between the header and raw pixels.
  void single_space() {
    if (at_end() || !is_space(here()))
      fail_damaged(source_, ImageFormat::kPnm, "the header does not end with white space");
    ++position_;
  }

 private:
  bool at_end() const { return position_ >= source_.bytes.size(); }
  std::uint8_t here() const { return source_.data()[position_]; }
  void skip_space() {
    bool in_comment = false;
    for (; !at_end(); ++position_) {
      const std::uint8_t c = here();
      if (in_comment) {
        in_comment = c != '\n' && c != '\r';
      } else if (c == '#') {
        in_comment = true;
      } else if (!is_space(c)) {
        return;
      }
    }
  }

  const Source& source_;
  std::size_t position_;
};

struct Layout {
  std::uint32_t width = 0, height = 0, maxval = 1;
  bool is_plain = false, is_bitmap = false, is_colour = false;
  std::size_t pixels_at = 0;
};

Layout read_layout(const Source& source) {
  const int kind = source.data()[1] - '0';
  Layout layout;
  layout.is_plain = kind <= 3;
  layout.is_bitmap = kind == 1 || kind == 4;
  layout.is_colour = kind == 3 || kind == 6;
  Tokens tokens(source, 2);
  layout.width = tokens.number();
  layout.height = tokens.number();
  if (!layout.is_bitmap) layout.maxval = tokens.number();
  if (layout.maxval < 1 || layout.maxval > 65535)
    fail_damaged(source, ImageFormat::kPnm, fmt::format("maxval: expected 1..65535, got {}", layout.maxval));
  check_size(source, ImageFormat::kPnm, layout.width, layout.height);
  if (!layout.is_plain) tokens.single_space();
  layout.pixels_at = tokens.position();
  // A plain bit takes a byte, a plain sample a digit and a space (the last one may lack it).
  const std::uint64_t n_samples = std::uint64_t{layout.width} * layout.height * (layout.is_colour ? 3 : 1);
  std::uint64_t least = n_samples * (layout.maxval > 255 ? 2 : 1);
  if (layout.is_plain) least = layout.is_bitmap ? n_samples : n_samples * 2 - 1;
  if (layout.is_bitmap && !layout.is_plain) least = (std::uint64_t{layout.width} + 7) / 8 * layout.height;
  if (least > source.bytes.size() - layout.pixels_at)
    fail_damaged(source, ImageFormat::kPnm,
                 fmt::format("the file is truncated: {} x {} pixels need {} bytes or more, {} are there",
                             layout.width, layout.height, least, source.bytes.size() - layout.pixels_at));
  return layout;
}

// 8-bit value of each sample value 0..maxval.
std::vector<std::uint8_t> sample_table(const Layout& layout) {
  std::vector<std::uint8_t> table(layout.maxval + 1);
  const bool through_16_bits = !layout.is_colour && layout.maxval > 255;
  for (std::uint32_t value = 0; value <= layout.maxval; ++value) {
    const double top = through_16_bits ? 65535.0 : 255.0;
    const auto scaled =
        static_cast<unsigned>(std::nearbyint(static_cast<double>(value) / layout.maxval * top));
    table[value] = through_16_bits ? grey16_to_8(scaled) : static_cast<std::uint8_t>(scaled);
  }
  return table;
}

void read_bitmap(const Source& source, const Layout& layout, Image& image) {
  Tokens tokens(source, layout.pixels_at);
  const std::uint8_t* row = source.data() + layout.pixels_at;
  std::uint8_t* to = image.rgb.data();
  for (std::uint32_t y = 0; y < layout.height; ++y, row += (layout.width + 7) / 8)
    for (std::uint32_t x = 0; x < layout.width; ++x, to += 3) {
      const bool is_black = layout.is_plain ? tokens.bit() : (row[x / 8] >> (7 - x % 8) & 1) != 0;
      const unsigned grey = is_black ? 0 : 255;
      put_rgb(to, grey, grey, grey);
    }
}

void read_samples(const Source& source, const Layout& layout, Image& image) {
  const std::vector<std::uint8_t> table = sample_table(layout);
  Tokens tokens(source, layout.pixels_at);
  const std::uint8_t* from = source.data() + layout.pixels_at;
  const auto next = [&]() -> std::uint8_t {
    std::uint32_t value = 0;
    if (layout.is_plain) {
      value = tokens.number();
      if (value > layout.maxval)
        fail_damaged(source, ImageFormat::kPnm,
                     fmt::format("a sample of {} with maxval {}", value, layout.maxval));
    } else if (layout.maxval > 255) {
      value = static_cast<std::uint32_t>(from[0] << 8 | from[1]);
      from += 2;
    } else {
      value = *from++;
    }
    return table[std::min(value, layout.maxval)];
  };
  for (std::size_t i = 0; i < image.rgb.size(); i += 3) {
    const std::uint8_t r = next();
    const std::uint8_t g = layout.is_colour ? next() : r;
    const std::uint8_t b = layout.is_colour ? next() : r;
    put_rgb(image.rgb.data() + i, r, g, b);
  }
}

Header probe(const Source& source) {
  const Layout layout = read_layout(source);
  return {static_cast<int>(layout.width), static_cast<int>(layout.height), 1, false, false};
}

Image decode(const Source& source) {
  const Layout layout = read_layout(source);
  Image image = make_image(source, ImageFormat::kPnm, layout.width, layout.height);
  if (layout.is_bitmap)
    read_bitmap(source, layout, image);
  else
    read_samples(source, layout, image);
  return image;
}

}  // namespace

const Codec kPnm{ImageFormat::kPnm, matches, probe, decode};

}  // namespace triptych::codec
