// TIFF 6.0 with libtiff: first page, strips or tiles, any compression libtiff has, 1, 2, 4, 8, 12 or 16 bits
// per sample, grey, palette, RGB, CMYK and YCbCr. Float, signed and 32-bit samples, CIE colour and raw sensor
// data are refused by name.
//
// As in Pillow: 16-bit colour keeps its high byte, palettes too; 16-bit grey is scaled by 1/257 (this
// project's rule). Messages go to a handler of this handle, so nothing is printed and threads do not meet.
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>

#include "media/codecs/bytes.h"
#include "media/codecs/codec.h"
#include "media/codecs/pixels.h"

namespace triptych::codec {
namespace {

bool matches(std::span<const std::byte> bytes) {
  const Bytes b(bytes);
  for (const std::string_view start : {std::string_view("II*\0", 4), std::string_view("MM\0*", 4),
                                       std::string_view("II+\0", 4), std::string_view("MM\0+", 4)})
    if (b.starts_with(0, start)) return true;
  return false;
}

constexpr std::uint16_t kMaxSamples = 6;  // as Pillow: CMYK and two more

// libtiff reads through this; the file lies in memory.
struct Input {
  const Source* source = nullptr;
  std::uint64_t position = 0;
  char fault[200] = {};  // the first error of libtiff
};

Input& input_of(thandle_t handle) { return *static_cast<Input*>(handle); }

tmsize_t read_input(thandle_t handle, void* to, tmsize_t n) {
  Input& input = input_of(handle);
  const std::uint64_t size = input.source->bytes.size();
  if (n <= 0 || input.position >= size) return 0;
  const auto taken =
      static_cast<std::size_t>(std::min<std::uint64_t>(size - input.position, static_cast<std::uint64_t>(n)));
  std::memcpy(to, input.source->data() + input.position, taken);
  input.position += taken;
  return static_cast<tmsize_t>(taken);
}
tmsize_t write_input(thandle_t, void*, tmsize_t) { return 0; }
toff_t seek_input(thandle_t handle, toff_t offset, int whence) {
  Input& input = input_of(handle);
  if (whence == SEEK_CUR) offset += input.position;
  if (whence == SEEK_END) offset += input.source->bytes.size();
  input.position = offset;
  return offset;
}
int close_input(thandle_t) { return 0; }
toff_t size_input(thandle_t handle) { return input_of(handle).source->bytes.size(); }
int map_input(thandle_t handle, void** base, toff_t* size) {
  // libtiff does not write to a file that was opened for reading.
  *base = const_cast<std::uint8_t*>(input_of(handle).source->data());
  *size = size_input(handle);
  return 1;
}
void unmap_input(thandle_t, void*, toff_t) {}

#if TIFFLIB_VERSION >= 20221213  // 4.5.0: handlers per file
int on_error(TIFF*, void* user, const char*, const char* format, va_list args) {
  auto* input = static_cast<Input*>(user);
  if (input->fault[0] == '\0') std::vsnprintf(input->fault, sizeof input->fault, format, args);
  return 1;
}
int on_warning(TIFF*, void*, const char*, const char*, va_list) { return 1; }
#endif

using Handle = std::unique_ptr<TIFF, decltype(&TIFFClose)>;

Handle open(Input& input) {
#if TIFFLIB_VERSION >= 20221213
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(),
                                                                                 TIFFOpenOptionsFree);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), on_error, &input);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), on_warning, nullptr);
  const std::uint64_t most = input.source->limits.max_pixels * 8 + input.source->bytes.size();
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(),
                                      static_cast<tmsize_t>(std::min<std::uint64_t>(most, 1ULL << 40)));
  TIFF* tiff = TIFFClientOpenExt("image", "r", &input, read_input, write_input, seek_input, close_input,
                                 size_input, map_input, unmap_input, options.get());
#else  // older libtiff has one handler for the process; switching it off is the only thread-safe choice
  static const bool is_quiet = [] {
    TIFFSetErrorHandler(nullptr);
    TIFFSetWarningHandler(nullptr);
    return true;
  }();
  static_cast<void>(is_quiet);
  TIFF* tiff = TIFFClientOpen("image", "r", &input, read_input, write_input, seek_input, close_input,
                              size_input, map_input, unmap_input);
#endif
  return Handle(tiff, TIFFClose);
}

struct Layout {
  std::uint32_t width = 0, height = 0;
  std::uint16_t bits = 1, samples = 1, photometric = PHOTOMETRIC_MINISBLACK, planar = PLANARCONFIG_CONTIG;
  std::uint16_t compression = COMPRESSION_NONE, orientation = ORIENTATION_TOPLEFT;
  std::uint16_t colours = 1;  // samples that are colour; one more may be alpha
  std::uint16_t alpha = 0;    // 0, EXTRASAMPLE_ASSOCALPHA or EXTRASAMPLE_UNASSALPHA
  bool needs_rgba_reader = false;
};

class TiffReader {
 public:
  explicit TiffReader(const Source& source) : source_(source), input_{&source}, tiff_(open(input_)) {
    if (tiff_ == nullptr) fail_here("damaged header");
    read_layout();
  }
  const Layout& layout() const { return layout_; }
  Image decode();

 private:
  [[noreturn]] void fail_here(std::string_view otherwise) const {
    const std::string_view fault = input_.fault;
    if (fault.find("Unsupported JPEG process") !=
        std::string_view::npos)  // libjpeg's words, lossless for one
      fail_unsupported(source_, ImageFormat::kTiff, fault);
    if (fault.find("not configured") != std::string_view::npos)  // a compression that this libtiff lacks
      fail_unsupported(source_, ImageFormat::kTiff, fault);
    fail_damaged(source_, ImageFormat::kTiff,
                 input_.fault[0] != '\0' ? std::string_view(input_.fault) : otherwise);
  }
  std::uint16_t field(std::uint32_t tag) const {
    std::uint16_t value = 0;
    TIFFGetFieldDefaulted(tiff_.get(), tag, &value);
    return value;
  }
  bool has_tag(std::uint32_t tag) const;
  void read_layout();
  void check_samples();
  void read_palette();
  void check_tile(std::uint32_t width, std::uint32_t height) const;
  void read_blocks(Image& image);
  void read_rgba(Image& image);
  void put_row(const std::uint16_t* samples, std::uint32_t n, std::uint8_t* to) const;

  const Source& source_;
  Input input_;
  Handle tiff_;
  Layout layout_;
  std::array<Rgb8, 256> palette_{};
};

// Of a file without PhotometricInterpretation: fax data is black ink on white paper.
std::uint16_t default_photometric(const Layout& l) {
  if (l.samples >= 3) return PHOTOMETRIC_RGB;
  const bool is_fax = l.compression == COMPRESSION_CCITTRLE || l.compression == COMPRESSION_CCITTRLEW ||
                      l.compression == COMPRESSION_CCITTFAX3 || l.compression == COMPRESSION_CCITTFAX4;
  return is_fax ? PHOTOMETRIC_MINISWHITE : PHOTOMETRIC_MINISBLACK;
}

// Whether the file itself holds the tag: libtiff declares samples that the file does not.
bool TiffReader::has_tag(std::uint32_t tag) const try {
  const Bytes bytes(source_.bytes);
  const bool is_big_endian = TIFFIsBigEndian(tiff_.get()) != 0;
  const bool is_big_tiff = bytes.u16(2, is_big_endian) == 43;
  const std::uint64_t directory = TIFFCurrentDirOffset(tiff_.get());
  const std::uint64_t n_entries =
      bytes.u16(is_big_tiff && is_big_endian ? directory + 6 : directory, is_big_endian);
  for (std::uint64_t i = 0; i < n_entries; ++i) {
    const std::uint64_t entry = is_big_tiff ? directory + 8 + i * 20 : directory + 2 + i * 12;
    if (bytes.u16(entry, is_big_endian) == tag) return true;
  }
  return false;
} catch (const OutOfBytes&) {
  return false;
}

void TiffReader::read_layout() {
  Layout& l = layout_;
  if (TIFFGetField(tiff_.get(), TIFFTAG_IMAGEWIDTH, &l.width) == 0 ||
      TIFFGetField(tiff_.get(), TIFFTAG_IMAGELENGTH, &l.height) == 0)
    fail_here("no size");
  check_size(source_, ImageFormat::kTiff, l.width, l.height);
  l.bits = field(TIFFTAG_BITSPERSAMPLE);
  l.samples = field(TIFFTAG_SAMPLESPERPIXEL);
  l.planar = field(TIFFTAG_PLANARCONFIG);
  l.compression = field(TIFFTAG_COMPRESSION);
  l.orientation = field(TIFFTAG_ORIENTATION);
  if (TIFFGetField(tiff_.get(), TIFFTAG_PHOTOMETRIC, &l.photometric) == 0)
    l.photometric = default_photometric(l);
  std::uint16_t n_extra = 0;
  std::uint16_t* extra = nullptr;
  TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_EXTRASAMPLES, &n_extra, &extra);
  if (n_extra > 0 && extra != nullptr &&
      (extra[0] == EXTRASAMPLE_ASSOCALPHA || extra[0] == EXTRASAMPLE_UNASSALPHA))
    l.alpha = extra[0];
  // A fourth sample that nothing declares is alpha, as Pillow and libtiff's own reader take it.
  if (l.photometric == PHOTOMETRIC_RGB && l.samples == 4 && !has_tag(TIFFTAG_EXTRASAMPLES))
    l.alpha = EXTRASAMPLE_UNASSALPHA;
  check_samples();
}

// The most bytes that one byte of compressed data can become.
std::uint64_t best_ratio(std::uint16_t compression) {
  switch (compression) {
    case COMPRESSION_NONE:
      return 1;
    case COMPRESSION_PACKBITS:
      return 64;
    case COMPRESSION_DEFLATE:
    case COMPRESSION_ADOBE_DEFLATE:
      return 1032;
    case COMPRESSION_LZW:
      return 2731;  // a code of 12 bits for 4096 bytes
    default:
      return 65536;  // a block of Zstandard, a blank row of a fax, ... : beyond what is found in pictures
  }
}

void TiffReader::check_samples() {
  Layout& l = layout_;
  switch (l.photometric) {
    case PHOTOMETRIC_MINISBLACK:
    case PHOTOMETRIC_MINISWHITE:
      l.colours = 1;
      break;
    case PHOTOMETRIC_PALETTE:
      if (l.bits > 8) fail_unsupported(source_, ImageFormat::kTiff, "a palette of more than 8 bits");
      l.colours = 1;
      break;
    case PHOTOMETRIC_RGB:
      l.colours = 3;
      break;
    case PHOTOMETRIC_SEPARATED:
      if (field(TIFFTAG_INKSET) != INKSET_CMYK)
        fail_unsupported(source_, ImageFormat::kTiff, "inks other than CMYK");
      l.colours = 4;
      break;
    case PHOTOMETRIC_YCBCR:
      l.colours = 3;
      if (l.compression == COMPRESSION_JPEG && l.planar == PLANARCONFIG_CONTIG)
        TIFFSetField(tiff_.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);  // libjpeg converts
      else
        l.needs_rgba_reader = true;
      break;
    default:
      fail_unsupported(source_, ImageFormat::kTiff,
                       fmt::format("photometric interpretation {}", l.photometric));
  }
  const std::uint16_t format = field(TIFFTAG_SAMPLEFORMAT);
  if (format != SAMPLEFORMAT_UINT && format != SAMPLEFORMAT_VOID)
    fail_unsupported(source_, ImageFormat::kTiff,
                     fmt::format("sample format {} (only unsigned integers are read)", format));
  if (l.bits != 1 && l.bits != 2 && l.bits != 4 && l.bits != 8 && l.bits != 12 && l.bits != 16)
    fail_unsupported(source_, ImageFormat::kTiff, fmt::format("{} bits per sample", l.bits));
  if (l.samples < l.colours || l.samples > kMaxSamples)
    fail_damaged(source_, ImageFormat::kTiff,
                 fmt::format("{} samples per pixel for {} colours", l.samples, l.colours));
  if (l.samples == l.colours) l.alpha = 0;
  check_ratio(source_, ImageFormat::kTiff, std::uint64_t{l.width} * l.height * l.samples * l.bits / 8,
              source_.bytes.size(), best_ratio(l.compression));
}

void TiffReader::read_palette() {
  std::uint16_t *r = nullptr, *g = nullptr, *b = nullptr;
  if (TIFFGetField(tiff_.get(), TIFFTAG_COLORMAP, &r, &g, &b) == 0) fail_here("no palette");
  const std::size_t n = std::size_t{1} << layout_.bits;
  for (std::size_t i = 0; i < n; ++i)
    palette_[i] = {static_cast<std::uint8_t>(r[i] >> 8), static_cast<std::uint8_t>(g[i] >> 8),
                   static_cast<std::uint8_t>(b[i] >> 8)};
}

// n samples of 1 to 16 bits, the first in the high bits of a byte; 16-bit samples are in the machine's order.
void unpack(const std::uint8_t* from, unsigned bits, std::size_t n, std::size_t step, std::uint16_t* to) {
  for (std::size_t i = 0; i < n; ++i, to += step) {
    if (bits == 16) {
      std::memcpy(to, from + 2 * i, 2);
    } else if (bits == 8) {
      *to = from[i];
    } else if (bits == 12) {
      const std::uint8_t* at = from + i * 12 / 8;
      *to = static_cast<std::uint16_t>(i % 2 == 0 ? at[0] << 4 | at[1] >> 4 : (at[0] & 15) << 8 | at[1]);
    } else {
      const std::size_t bit = i * bits;
      *to = static_cast<std::uint16_t>(from[bit / 8] >> (8 - bits - bit % 8) & ((1U << bits) - 1));
    }
  }
}

// A colour sample as 8 bits: small ones spread over 0..255, the high byte of 16.
std::uint8_t to_8_bits(unsigned value, unsigned bits) {
  if (bits == 16) return static_cast<std::uint8_t>(value >> 8);
  return static_cast<std::uint8_t>(value * 255 / ((1U << bits) - 1));
}

void TiffReader::put_row(const std::uint16_t* samples, std::uint32_t n, std::uint8_t* to) const {
  const Layout& l = layout_;
  const Rgb8 background = source_.background;
  for (std::uint32_t x = 0; x < n; ++x, samples += l.samples, to += 3) {
    std::uint8_t rgb[3];
    if (l.photometric == PHOTOMETRIC_PALETTE) {
      const Rgb8 colour = palette_[samples[0] & 255];
      put_rgb(rgb, colour.r, colour.g, colour.b);
    } else if (l.colours == 1) {
      unsigned grey = to_8_bits(samples[0], l.bits);
      if (l.bits == 16) grey = grey16_to_8(samples[0]);
      if (l.bits == 12) grey = (samples[0] * 255U + 2047) / 4095;
      if (l.photometric == PHOTOMETRIC_MINISWHITE) grey = 255 - grey;
      put_rgb(rgb, grey, grey, grey);
    } else if (l.colours == 4) {
      put_cmyk(rgb, to_8_bits(samples[0], l.bits), to_8_bits(samples[1], l.bits),
               to_8_bits(samples[2], l.bits), to_8_bits(samples[3], l.bits));
    } else {
      for (int c = 0; c < 3; ++c) rgb[c] = to_8_bits(samples[c], l.bits);
    }
    if (l.alpha == 0) {
      put_rgb(to, rgb[0], rgb[1], rgb[2]);
      continue;
    }
    const unsigned alpha = to_8_bits(samples[l.colours], l.bits);
    if (l.alpha == EXTRASAMPLE_UNASSALPHA) {
      put_rgb(to, over(rgb[0], alpha, background.r), over(rgb[1], alpha, background.g),
              over(rgb[2], alpha, background.b));
    } else {  // colours are already multiplied by alpha
      const auto add = [alpha](unsigned colour, unsigned under) {
        return std::min(255U, colour + multiply_255(under, 255 - alpha));
      };
      put_rgb(to, add(rgb[0], background.r), add(rgb[1], background.g), add(rgb[2], background.b));
    }
  }
}

// The part of a tile outside the picture is memory for nothing: tiles are larger than the picture in small
// pictures only.
void TiffReader::check_tile(std::uint32_t width, std::uint32_t height) const {
  constexpr std::uint64_t kUsual = 1024 * 1024;
  const auto up_to_16 = [](std::uint64_t n) { return (n + 15) / 16 * 16; };
  const std::uint64_t picture = up_to_16(layout_.width) * up_to_16(layout_.height);
  if (std::uint64_t{width} * height > std::max(kUsual, 4 * picture))
    fail_damaged(source_, ImageFormat::kTiff,
                 fmt::format("tiles of {} x {} pixels in a picture of {} x {}", width, height, layout_.width,
                             layout_.height));
}

// Strips are blocks as wide as the picture, tiles blocks of a fixed size; separate planes are sequences of
// blocks.
void TiffReader::read_blocks(Image& image) {
  const Layout& l = layout_;
  const bool is_tiled = TIFFIsTiled(tiff_.get()) != 0;
  std::uint32_t block_width = l.width, block_height = l.height;
  if (is_tiled) {
    TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &block_width);
    TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &block_height);
    check_size(source_, ImageFormat::kTiff, block_width, block_height);
    check_tile(block_width, block_height);
  } else {
    TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_ROWSPERSTRIP, &block_height);
    block_height = std::min(block_height, l.height);
    if (block_height == 0) fail_here("strips of 0 rows");
  }
  const bool is_separate = l.planar == PLANARCONFIG_SEPARATE && l.samples > 1;
  const std::size_t n_planes = is_separate ? l.samples : 1;
  const std::size_t samples_per_row = std::size_t{block_width} * (is_separate ? 1 : l.samples);
  const std::size_t row_bytes = (samples_per_row * l.bits + 7) / 8;
  const std::size_t block_bytes = row_bytes * block_height;
  const tmsize_t stated = is_tiled ? TIFFTileSize(tiff_.get()) : TIFFStripSize(tiff_.get());
  if (stated < 0 || static_cast<std::uint64_t>(stated) != block_bytes)
    fail_here("strips or tiles of an unexpected size");
  check_ratio(source_, ImageFormat::kTiff, block_bytes * n_planes, source_.bytes.size(),
              best_ratio(l.compression));
  // Zeros: libtiff accepts a fax strip that ends early and a JPEG smaller than its tile, and writes only what
  // they hold.
  PoolVector<std::uint8_t> blocks(block_bytes * n_planes, 0);
  std::vector<std::uint16_t> row(std::size_t{block_width} * l.samples);
  for (std::uint32_t top = 0; top < l.height; top += block_height) {
    const std::uint32_t n_rows = std::min(block_height, l.height - top);
    for (std::uint32_t left = 0; left < l.width; left += block_width) {
      for (std::size_t plane = 0; plane < n_planes; ++plane) {
        const auto sample = static_cast<std::uint16_t>(plane);
        std::uint8_t* to = blocks.data() + plane * block_bytes;
        const auto wanted = static_cast<tmsize_t>(is_tiled ? block_bytes : row_bytes * n_rows);
        const tmsize_t got =
            is_tiled
                ? TIFFReadEncodedTile(tiff_.get(), TIFFComputeTile(tiff_.get(), left, top, 0, sample), to,
                                      wanted)
                : TIFFReadEncodedStrip(tiff_.get(), TIFFComputeStrip(tiff_.get(), top, sample), to, wanted);
        if (got != wanted) fail_here("the pixel data is truncated");
      }
      const std::uint32_t n_columns = std::min(block_width, l.width - left);
      for (std::uint32_t y = 0; y < n_rows; ++y) {
        for (std::size_t plane = 0; plane < n_planes; ++plane)
          unpack(blocks.data() + plane * block_bytes + y * row_bytes, l.bits, samples_per_row,
                 is_separate ? l.samples : 1, row.data() + plane);
        put_row(row.data(), n_columns,
                image.rgb.data() + (top + y) * image.row_bytes() + std::size_t{left} * 3);
      }
    }
  }
}

// Subsampled YCbCr without JPEG: libtiff's own converter. Asking for the stored orientation keeps rows as
// they are.
void TiffReader::read_rgba(Image& image) {
  PoolVector<std::uint32_t> raster(std::size_t{layout_.width} * layout_.height, 0);
  if (TIFFReadRGBAImageOriented(tiff_.get(), layout_.width, layout_.height, raster.data(),
                                layout_.orientation, 1) == 0)
    fail_here("the pixel data is damaged");
  std::uint8_t* to = image.rgb.data();
  for (const std::uint32_t px : raster) {
    put_rgb(to, TIFFGetR(px), TIFFGetG(px), TIFFGetB(px));
    to += 3;
  }
}

Image TiffReader::decode() {
  if (layout_.photometric == PHOTOMETRIC_PALETTE) read_palette();
  Image image = make_image(source_, ImageFormat::kTiff, layout_.width, layout_.height);
  if (layout_.needs_rgba_reader)
    read_rgba(image);
  else
    read_blocks(image);
  return image;
}

Header probe(const Source& source) {
  const TiffReader reader(source);
  const Layout& l = reader.layout();
  return {static_cast<int>(l.width), static_cast<int>(l.height),
          l.orientation >= 1 && l.orientation <= 8 ? l.orientation : 1, l.alpha != 0, false};
}

Image decode(const Source& source) { return TiffReader(source).decode(); }

}  // namespace

const Codec kTiff{ImageFormat::kTiff, matches, probe, decode};

}  // namespace triptych::codec
