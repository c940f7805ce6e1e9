// PNG with libpng (PNG specification, third edition). libpng reports a fault by longjmp: every libpng call
// runs inside guarded(), whose steps own nothing; memory is owned by PngReader and by the callers.
//
// As in Pillow: gamma and colour profiles are ignored, 16-bit colour keeps its high byte. Transparency (tRNS
// or an alpha channel) is laid over the background; 16-bit grey is scaled by 1/257 (png_set_scale_16 does
// exactly that).
#include <png.h>
#include <setjmp.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "media/codecs/bytes.h"
#include "media/codecs/codec.h"
#include "media/codecs/orientation.h"
#include "media/codecs/pixels.h"

namespace triptych::codec {
namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);

bool matches(std::span<const std::byte> bytes) { return Bytes(bytes).starts_with(0, kSignature); }

// A text chunk (tEXt, zTXt, iTXt: PNG specification, section 11.3.3), read only where its keyword says that
// it may hold an orientation.
class TextChunk {
 public:
  TextChunk(std::span<const std::byte> type, std::span<const std::byte> data)
      : type_(reinterpret_cast<const char*>(type.data()), type.size()),
        data_(reinterpret_cast<const char*>(data.data()), data.size()) {}

  bool has_keyword(std::string_view keyword) const {
    return (type_ == "tEXt" || type_ == "zTXt" || type_ == "iTXt") && data_.size() > keyword.size() &&
           data_.starts_with(keyword) && data_[keyword.size()] == '\0';
  }
  /// Inflated where it is compressed; empty when it is damaged.
  std::string text() const {
    std::string_view rest = data_.substr(data_.find('\0') + 1);
    if (type_ == "tEXt") return std::string(rest);
    if (type_ == "zTXt") return rest.empty() || rest[0] != 0 ? std::string() : inflated(rest.substr(1));
    if (rest.size() < 2) return {};
    const bool is_compressed = rest[0] != 0;
    rest.remove_prefix(2);                     // flag and method
    for (int field = 0; field < 2; ++field) {  // language, translated keyword
      const std::size_t end = rest.find('\0');
      if (end == std::string_view::npos) return {};
      rest.remove_prefix(end + 1);
    }
    return is_compressed ? inflated(rest) : std::string(rest);
  }

 private:
  static std::string inflated(std::string_view packed) {
    constexpr std::size_t kMost_bytes = 1 << 20;  // Pillow's limit of a text chunk
    z_stream stream{};
    if (inflateInit(&stream) != Z_OK) return {};
    const std::unique_ptr<z_stream, decltype(&inflateEnd)> end(&stream, inflateEnd);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    std::string out;
    std::array<char, 4096> block;
    for (int status = Z_OK; status == Z_OK;) {
      stream.next_out = reinterpret_cast<Bytef*>(block.data());
      stream.avail_out = static_cast<uInt>(block.size());
      status = inflate(&stream, Z_NO_FLUSH);
      if (status != Z_OK && status != Z_STREAM_END) return {};
      out.append(block.data(), block.size() - stream.avail_out);
      if (out.size() > kMost_bytes) return {};
    }
    return out;
  }

  std::string_view type_;
  std::string_view data_;
};

// Walks the chunks; what a chunk says is trusted only as far as it is checked here.
Header probe(const Source& source) try {
  const Bytes bytes(source.bytes);
  if (!bytes.starts_with(12, "IHDR")) fail_damaged(source, ImageFormat::kPng, "no IHDR chunk at the start");
  const std::uint32_t width = bytes.u32(16, true);
  const std::uint32_t height = bytes.u32(20, true);
  check_size(source, ImageFormat::kPng, width, height);
  Header header{static_cast<int>(width), static_cast<int>(height), 1, (bytes.u8(25) & 4) != 0, false};
  int from_exif = 0, from_profile = 0, from_xmp = 0;
  constexpr int kMostTexts = 16;  // each may inflate to a megabyte; files have one of each kind
  int n_texts = 0;
  for (std::uint64_t at = 8; bytes.has(at, 12); at += std::uint64_t{12} + bytes.u32(at, true)) {
    const std::uint32_t n = bytes.u32(at, true);
    if (!bytes.has(at + 8, n) || bytes.starts_with(at + 4, "IEND")) break;
    if (bytes.starts_with(at + 4, "tRNS")) header.has_alpha = true;
    if (bytes.starts_with(at + 4, "eXIf")) from_exif = exif_orientation(bytes.part(at + 8, n));
    const TextChunk chunk{bytes.part(at + 4, 4), bytes.part(at + 8, n)};
    const bool is_profile = chunk.has_keyword("Raw profile type exif");
    const bool is_xmp = chunk.has_keyword("XML:com.adobe.xmp");
    if ((is_profile || is_xmp) && ++n_texts > kMostTexts) continue;
    if (is_profile) from_profile = raw_profile_orientation(chunk.text());
    if (is_xmp) from_xmp = xmp_orientation(std::as_bytes(std::span<const char>(chunk.text())));
  }
  header.orientation = 1;
  for (const int found : {from_xmp, from_profile, from_exif})
    if (found != 0) header.orientation = found;
  return header;
} catch (const OutOfBytes&) {
  fail_damaged(source, ImageFormat::kPng, "the file ends inside its header");
}

class PngReader {
 public:
  explicit PngReader(const Source& source) : source_(source) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      fail(ErrorCode::kOutOfMemory, "{}: PNG: libpng could not start", source.name);
    }
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  Image decode();

 private:
  // Runs step(); a fault that libpng reports becomes an Error. step and what it calls must own nothing:
  // longjmp skips destructors.
  template <typename Step>
  void guarded(Step step) {
    if (setjmp(jump_) == 0) {
      step();
      return;
    }
    fail_damaged(source_, ImageFormat::kPng, message_);
  }
  void read_header();
  void read_direct(Image& image);
  void read_through_buffer(Image& image, int n_channels);

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self->message_, message, sizeof self->message_ - 1);
    longjmp(self->jump_, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep to, size_t n) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (n > self->source_.bytes.size() - self->position_) png_error(png, "the file is truncated");
    std::memcpy(to, self->source_.data() + self->position_, n);
    self->position_ += n;
  }

  const Source& source_;
  std::size_t position_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  jmp_buf jump_;
  char message_[160] = {};
};

void PngReader::read_header() {
  // Text, profiles and the like are skipped unread: they could be large and change nothing.
  static constexpr png_byte kIgnored[] =
      "tEXt\0zTXt\0iTXt\0iCCP\0sPLT\0hIST\0eXIf\0gAMA\0cHRM\0sRGB\0pHYs\0tIME";
  png_set_read_fn(png_, this, on_read);
  png_set_user_limits(png_, static_cast<png_uint_32>(source_.limits.max_side_px),
                      static_cast<png_uint_32>(source_.limits.max_side_px));
  png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kIgnored, sizeof kIgnored / 5);
  png_read_info(png_, info_);
}

Image PngReader::decode() {
  guarded([this] { read_header(); });
  constexpr std::uint64_t kDeflateRatio = 1032;
  const std::uint64_t width = png_get_image_width(png_, info_);
  const std::uint64_t height = png_get_image_height(png_, info_);
  check_size(source_, ImageFormat::kPng, width, height);
  check_ratio(source_, ImageFormat::kPng, png_get_rowbytes(png_, info_) * height, source_.bytes.size(),
              kDeflateRatio);
  Image image = make_image(source_, ImageFormat::kPng, width, height);
  int n_channels = 0;
  guarded([&] {
    const int depth = png_get_bit_depth(png_, info_);
    const int colour = png_get_color_type(png_, info_);
    if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (colour == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (png_get_valid(png_, info_, PNG_INFO_tRNS) != 0) png_set_tRNS_to_alpha(png_);
    if (depth == 16 && colour == PNG_COLOR_TYPE_GRAY) png_set_scale_16(png_);
    if (depth == 16 && colour != PNG_COLOR_TYPE_GRAY) png_set_strip_16(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    n_channels = png_get_channels(png_, info_);
  });
  TRIPTYCH_CHECK(png_get_bit_depth(png_, info_) == 8 && n_channels >= 1 && n_channels <= 4);
  if (n_channels == 3)
    read_direct(image);
  else
    read_through_buffer(image, n_channels);
  guarded([this] { png_read_end(png_, nullptr); });  // checks the last CRCs and that IEND is there
  return image;
}

// RGB rows go straight to their place; an interlaced picture needs all of them for each pass.
void PngReader::read_direct(Image& image) {
  std::uint8_t* first = image.rgb.data();
  const std::size_t stride = image.row_bytes();
  const int height = image.height_px;
  guarded([=, this] {
    const int n_passes = png_get_interlace_type(png_, info_) == PNG_INTERLACE_NONE ? 1 : 7;
    for (int pass = 0; pass < n_passes; ++pass)
      for (int y = 0; y < height; ++y)
        png_read_row(png_, first + static_cast<std::size_t>(y) * stride, nullptr);
  });
}

void convert_row(const std::uint8_t* from, int n_channels, Rgb8 background, std::uint8_t* to, int width) {
  for (int x = 0; x < width; ++x, from += n_channels, to += 3) {
    if (n_channels == 1)
      put_rgb(to, from[0], from[0], from[0]);
    else if (n_channels == 2)
      put_rgb(to, over(from[0], from[1], background.r), over(from[0], from[1], background.g),
              over(from[0], from[1], background.b));
    else
      put_rgba(to, from, background);
  }
}

void PngReader::read_through_buffer(Image& image, int n_channels) {
  const bool is_interlaced = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
  const std::size_t row_bytes = png_get_rowbytes(png_, info_);
  const auto height = static_cast<std::size_t>(image.height_px);
  PoolVector<std::uint8_t> buffer(row_bytes * (is_interlaced ? height : 1));
  std::uint8_t* rows = buffer.data();
  if (is_interlaced)
    guarded([=, this] {
      for (int pass = 0; pass < 7; ++pass)
        for (std::size_t y = 0; y < height; ++y) png_read_row(png_, rows + y * row_bytes, nullptr);
    });
  for (std::size_t y = 0; y < height; ++y) {
    if (!is_interlaced) guarded([=, this] { png_read_row(png_, rows, nullptr); });
    convert_row(is_interlaced ? rows + y * row_bytes : rows, n_channels, source_.background,
                image.rgb.data() + y * image.row_bytes(), image.width_px);
  }
}

Image decode(const Source& source) { return PngReader(source).decode(); }

}  // namespace

const Codec kPng{ImageFormat::kPng, matches, probe, decode};

}  // namespace triptych::codec
