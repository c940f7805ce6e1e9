// Chooses the decoder by content, checks the limits, turns the picture upright.
#include "media/image_decode.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/error.h"
#include "media/codecs/bytes.h"
#include "media/codecs/codec.h"
#include "media/codecs/orientation.h"

namespace triptych {
namespace codec {

void fail_damaged(const Source& source, ImageFormat format, std::string_view fault) {
  fail(ErrorCode::kInvalidFile, "{}: {}: {}", source.name, to_string(format), fault);
}

void fail_unsupported(const Source& source, ImageFormat format, std::string_view what) {
  fail(ErrorCode::kUnsupported, "{}: {}: {} is not supported", source.name, to_string(format), what);
}

void check_size(const Source& source, ImageFormat format, std::uint64_t width_px, std::uint64_t height_px) {
  if (width_px == 0 || height_px == 0)
    fail_damaged(source, format, fmt::format("a size of {} x {} pixels", width_px, height_px));
  const auto max_side = static_cast<std::uint64_t>(source.limits.max_side_px);
  if (width_px > max_side || height_px > max_side)
    fail(ErrorCode::kInvalidArgument, "{}: {}: {} x {} pixels, a side may have at most {}", source.name,
         to_string(format), width_px, height_px, max_side);
  if (width_px * height_px > source.limits.max_pixels)
    fail(ErrorCode::kInvalidArgument, "{}: {}: {} x {} pixels, at most {} pixels are allowed", source.name,
         to_string(format), width_px, height_px, source.limits.max_pixels);
}

void check_ratio(const Source& source, ImageFormat format, std::uint64_t pixel_bytes, std::uint64_t n_stored,
                 std::uint64_t best_ratio) {
  constexpr std::uint64_t kSmall = 1 << 20;  // not worth a refusal
  if (pixel_bytes > kSmall && pixel_bytes / best_ratio > n_stored)
    fail_damaged(source, format,
                 fmt::format("too short for its size: {} bytes cannot hold {} bytes of pixels", n_stored,
                             pixel_bytes));
}

Image make_image(const Source& source, ImageFormat format, std::uint64_t width_px, std::uint64_t height_px) {
  check_size(source, format, width_px, height_px);
  Image image{static_cast<int>(width_px), static_cast<int>(height_px), {}};
  image.rgb.resize(static_cast<std::size_t>(width_px * height_px * 3));
  return image;
}

void check_frames(const Source& source, ImageFormat format, const FrameCount& count) {
  const auto max_frames = static_cast<std::size_t>(source.limits.max_frames);
  if (count.n_drawn > max_frames)
    fail(ErrorCode::kInvalidArgument, "{}: {}: more than {} frames", source.name, to_string(format),
         max_frames);
  const auto check = [&](std::size_t n_frames, std::uint64_t pixels, std::uint64_t max_pixels) {
    if (pixels > max_pixels)
      fail(ErrorCode::kInvalidArgument, "{}: {}: {} frames have {} pixels together, at most {} are allowed",
           source.name, to_string(format), n_frames, pixels, max_pixels);
  };
  check(count.n_kept, count.kept_pixels, source.limits.max_animation_pixels);
  check(count.n_drawn, count.drawn_pixels, source.limits.max_drawn_pixels);
}

}  // namespace codec

namespace {

using codec::Codec;
using codec::Header;
using codec::Source;

const std::array<const Codec*, 7> kCodecs{&codec::kPng,  &codec::kJpeg, &codec::kWebp, &codec::kGif,
                                          &codec::kTiff, &codec::kBmp,  &codec::kPnm};

constexpr std::array<std::pair<ImageFormat, std::string_view>, 7> kNames{{{ImageFormat::kPng, "PNG"},
                                                                          {ImageFormat::kJpeg, "JPEG"},
                                                                          {ImageFormat::kWebp, "WebP"},
                                                                          {ImageFormat::kGif, "GIF"},
                                                                          {ImageFormat::kTiff, "TIFF"},
                                                                          {ImageFormat::kBmp, "BMP"},
                                                                          {ImageFormat::kPnm, "PNM"}}};

bool looks_like_cursor(const codec::Bytes& bytes) { return bytes.has(0, 22) && bytes.u16(4, false) > 0; }

// TGA has no mark at its start: newer files have one at their end, of older ones the header must make sense.
bool looks_like_tga(const codec::Bytes& bytes) {
  constexpr std::string_view kFooter("TRUEVISION-XFILE.\0", 18);
  if (bytes.size() >= kFooter.size() && bytes.starts_with(bytes.size() - kFooter.size(), kFooter))
    return true;
  if (!bytes.has(0, 18)) return false;
  const unsigned has_map = bytes.u8(1), type = bytes.u8(2), depth = bytes.u8(16);
  const bool is_mapped = type == 1 || type == 9;
  const bool is_direct = type == 2 || type == 10 || type == 3 || type == 11;
  const bool has_depth = depth == 8 || depth == 15 || depth == 16 || depth == 24 || depth == 32;
  const unsigned map_depth = bytes.u8(7);
  return (is_mapped ? has_map == 1 && (map_depth == 16 || map_depth == 24 || map_depth == 32)
                    : is_direct && has_map == 0) &&
         has_depth && bytes.u16(12, false) > 0 && bytes.u16(14, false) > 0 && (bytes.u8(17) & 0xC0) == 0;
}

// How pictures of a format that is not read become PNG, or frames of a video; "" where nothing is worth
// saying. FILE stands for the file.
std::string_view way_to_png(std::string_view format) {
  constexpr std::pair<std::string_view, std::string_view> kWays[] = {
      {"MP4 or QuickTime video",
       "`mkdir frames; ffmpeg -i FILE -vf fps=2 frames/%05d.png` and --video frames"},
      {"Matroska or WebM video",
       "`mkdir frames; ffmpeg -i FILE -vf fps=2 frames/%05d.png` and --video frames"},
      {"AVI video", "`mkdir frames; ffmpeg -i FILE -vf fps=2 frames/%05d.png` and --video frames"},
      {"HEIF", "`heif-convert FILE picture.png` (libheif-examples)"},
      {"AVIF", "`avifdec FILE picture.png` (libavif-bin)"},
      {"JPEG XL", "`djxl FILE picture.png` (libjxl-tools)"},
      {"JPEG 2000", "`opj_decompress -i FILE -o picture.png` (libopenjp2-tools)"},
      {"PDF", "`pdftoppm -png -r 150 FILE page` (poppler-utils), which makes one picture a page"},
      {"SVG or XML", "`rsvg-convert FILE -o picture.png` (librsvg2-bin)"}};
  for (const auto& [name, way] : kWays)
    if (name == format) return way;
  return {};
}

// Formats that are recognised only to say so.
std::string_view other_format(std::span<const std::byte> file) {
  const codec::Bytes bytes(file);
  if (bytes.starts_with(4, "ftypavif") || bytes.starts_with(4, "ftypavis")) return "AVIF";
  for (const std::string_view brand : {"ftypheic", "ftypheix", "ftypmif1", "ftyphevc", "ftypmsf1"})
    if (bytes.starts_with(4, brand)) return "HEIF";
  if (bytes.starts_with(4, "ftyp")) return "MP4 or QuickTime video";
  if (bytes.starts_with(0, "\x1a\x45\xdf\xa3")) return "Matroska or WebM video";
  if (bytes.starts_with(0, "RIFF") && bytes.starts_with(8, "AVI ")) return "AVI video";
  if (bytes.starts_with(0, "\xff\x0a") || bytes.starts_with(4, "JXL ")) return "JPEG XL";
  if (bytes.starts_with(4, "jP  ") || bytes.starts_with(0, "\xff\x4f\xff\x51")) return "JPEG 2000";
  if (bytes.starts_with(0, "%PDF")) return "PDF";
  if (bytes.starts_with(0, "<svg") || bytes.starts_with(0, "<?xml")) return "SVG or XML";
  if (bytes.starts_with(0, "P7\n")) return "PAM";
  if (bytes.starts_with(0, "Pf\n") || bytes.starts_with(0, "PF\n")) return "PFM";
  if (bytes.starts_with(0, "8BPS")) return "Photoshop";
  if (bytes.starts_with(0, "qoif")) return "QOI";
  if (bytes.starts_with(0, std::string_view("\0\0\1\0", 4))) return "ICO (Windows icon)";
  if (bytes.starts_with(0, std::string_view("\0\0\2\0", 4)) && looks_like_cursor(bytes))
    return "CUR (Windows cursor)";
  if (bytes.starts_with(0, "DDS ")) return "DDS";
  if (looks_like_tga(bytes)) return "TGA";
  return {};
}

const Codec& find_codec(const Source& source) {
  constexpr std::string_view kFormats = "PNG, JPEG, WebP, GIF, TIFF, BMP or PNM";
  if (source.bytes.size() > source.limits.max_file_bytes)
    fail(ErrorCode::kInvalidArgument, "{}: the file has {} bytes, at most {} are allowed", source.name,
         source.bytes.size(), source.limits.max_file_bytes);
  if (source.bytes.empty())
    fail(ErrorCode::kInvalidFile, "{}: the file is empty, expected {}", source.name, kFormats);
  for (const Codec* codec : kCodecs)
    if (codec->matches(source.bytes)) return *codec;
  if (const std::string_view other = other_format(source.bytes); !other.empty()) {
    const std::string_view way = way_to_png(other);
    fail(ErrorCode::kUnsupported, "{}: {} is not supported, expected {}{}{}", source.name, other, kFormats,
         way.empty() ? "" : "; convert it: ", way);
  }
  constexpr std::string_view kLfsPointer = "version https://git-lfs";
  if (codec::Bytes(source.bytes).starts_with(0, kLfsPointer))
    fail(ErrorCode::kInvalidFile,
         "{}: a pointer of git-lfs to a file that was not fetched; run `git lfs pull` in the clone",
         source.name);
  std::string start;
  for (std::size_t i = 0; i < source.bytes.size() && i < 8; ++i)
    start += fmt::format("{}{:02x}", i == 0 ? "" : " ", std::to_integer<unsigned>(source.bytes[i]));
  fail(ErrorCode::kInvalidFile, "{}: not an image: expected {}, the file starts with {}", source.name,
       kFormats, start);
}

Source make_source(std::span<const std::byte> bytes, const DecodeLimits& limits, std::string_view name,
                   Rgb8 background) {
  return {bytes, limits, name.empty() ? std::string_view("image") : name, background};
}

}  // namespace

std::string_view to_string(ImageFormat format) noexcept {
  for (const auto& [value, name] : kNames)
    if (value == format) return name;
  return "unknown";
}

ImageInfo probe_image(std::span<const std::byte> bytes, const DecodeLimits& limits, std::string_view name) {
  const Source source = make_source(bytes, limits, name, kWhite);
  const Codec& codec = find_codec(source);
  const Header header = codec.probe(source);
  ImageInfo info{codec.format,       header.width_px,  header.height_px,
                 header.orientation, header.has_alpha, header.is_animated};
  if (codec::swaps_sides(header.orientation)) std::swap(info.width_px, info.height_px);
  return info;
}

Image decode_image(std::span<const std::byte> bytes, const DecodeLimits& limits, std::string_view name,
                   Rgb8 background) {
  const Source source = make_source(bytes, limits, name, background);
  const Codec& codec = find_codec(source);
  const int orientation = codec.probe(source).orientation;
  return codec::apply_orientation(codec.decode(source), orientation);
}

std::vector<Frame> decode_animation(std::span<const std::byte> bytes, const DecodeLimits& limits,
                                    std::string_view name, Rgb8 background) {
  const Source source = make_source(bytes, limits, name, background);
  const Codec& codec = find_codec(source);
  if (codec.decode_animation == nullptr) {
    std::vector<Frame> frames(1);
    frames[0].image = decode_image(bytes, limits, name, background);
    return frames;
  }
  const int orientation = codec.probe(source).orientation;
  std::vector<Frame> frames = codec.decode_animation(source, {});
  for (Frame& frame : frames) frame.image = codec::apply_orientation(std::move(frame.image), orientation);
  return frames;
}

AnimationInfo probe_animation(std::span<const std::byte> bytes, const DecodeLimits& limits,
                              std::string_view name) {
  const Source source = make_source(bytes, limits, name, kWhite);
  const Codec& codec = find_codec(source);
  const Header header = codec.probe(source);
  AnimationInfo out{header.width_px, header.height_px, {}};
  if (codec::swaps_sides(header.orientation)) std::swap(out.width_px, out.height_px);
  out.durations_ms = codec.durations_ms == nullptr ? std::vector<int>{0} : codec.durations_ms(source);
  return out;
}

std::vector<Image> decode_frames(std::span<const std::byte> bytes, const DecodeLimits& limits,
                                 std::string_view name, std::span<const int> indices, Rgb8 background) {
  TRIPTYCH_CHECK(!indices.empty() && indices.front() >= 0 && std::is_sorted(indices.begin(), indices.end()),
                 "[decode_frames] {} indices", indices.size());
  const Source source = make_source(bytes, limits, name, background);
  const Codec& codec = find_codec(source);
  const Header header = codec.probe(source);
  const std::uint64_t pixels =
      static_cast<std::uint64_t>(header.width_px) * static_cast<std::uint64_t>(header.height_px);
  codec::check_frames(source, codec.format,
                      {.n_drawn = 1, .n_kept = indices.size(), .kept_pixels = indices.size() * pixels});
  std::vector<Frame> frames;
  if (codec.decode_animation == nullptr) {
    if (indices.front() == 0) frames.push_back({codec.decode(source), 0});
  } else {
    frames = codec.decode_animation(source, codec::FrameChoice(indices));
  }
  std::vector<Image> out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (i > 0 && indices[i] == indices[i - 1]) {
      out.push_back(Image(out.back()));
      continue;
    }
    if (next == frames.size())
      codec::fail_damaged(source, codec.format, fmt::format("it has no frame {}", indices[i]));
    out.push_back(codec::apply_orientation(std::move(frames[next++].image), header.orientation));
  }
  return out;
}

}  // namespace triptych
