// WebP (lossy, lossless, animated) with libwebp and its demuxer. Orientation comes from the EXIF or XMP
// chunk.
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>

#include "media/codecs/bytes.h"
#include "media/codecs/codec.h"
#include "media/codecs/orientation.h"
#include "media/codecs/pixels.h"

namespace triptych::codec {
namespace {

bool matches(std::span<const std::byte> bytes) {
  return Bytes(bytes).starts_with(0, "RIFF") && Bytes(bytes).starts_with(8, "WEBP");
}

std::string_view describe(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_BITSTREAM_ERROR:
      return "damaged data";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "a feature that libwebp does not know";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the file is truncated";
    default:
      return "cannot be decoded";
  }
}

[[noreturn]] void fail_status(const Source& source, VP8StatusCode status) {
  if (status == VP8_STATUS_OUT_OF_MEMORY)
    fail(ErrorCode::kOutOfMemory, "{}: WebP: out of memory", source.name);
  fail_damaged(source, ImageFormat::kWebp, describe(status));
}

int orientation(const Bytes& bytes) {
  int from_xmp = 0;
  for (std::uint64_t at = 12; bytes.has(at, 8);) {
    const std::uint32_t n = bytes.u32(at + 4, false);
    if (!bytes.has(at + 8, n)) break;
    if (bytes.starts_with(at, "EXIF"))
      if (const int found = exif_orientation(bytes.part(at + 8, n)); found != 0) return found;
    if (bytes.starts_with(at, "XMP ") && from_xmp == 0) from_xmp = xmp_orientation(bytes.part(at + 8, n));
    at += 8 + std::uint64_t{n} + (n & 1);
  }
  return std::max(from_xmp, 1);
}

Header probe(const Source& source) try {
  const Bytes bytes(source.bytes);
  if (std::uint64_t{bytes.u32(4, false)} + 8 > bytes.size())
    fail_damaged(source, ImageFormat::kWebp, "the file is truncated");
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(source.data(), source.bytes.size(), &features);
  if (status != VP8_STATUS_OK) fail_status(source, status);
  check_size(source, ImageFormat::kWebp, static_cast<std::uint64_t>(features.width),
             static_cast<std::uint64_t>(features.height));
  return {features.width, features.height, orientation(bytes), features.has_alpha != 0,
          features.has_animation != 0};
} catch (const OutOfBytes&) {
  fail_damaged(source, ImageFormat::kWebp, "the file is truncated");
}

void put_canvas(const std::uint8_t* rgba, Rgb8 background, Image& image) {
  std::uint8_t* to = image.rgb.data();
  for (std::size_t n = image.rgb.size() / 3; n > 0; --n, rgba += 4, to += 3) put_rgba(to, rgba, background);
}

// Complete canvases; the first frame may cover only a part of the canvas.
std::vector<Frame> read_frames(const Source& source, const Header& header, const FrameChoice& choice) {
  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0)
    fail(ErrorCode::kInternal, "libwebpdemux has another version");
  options.color_mode = MODE_RGBA;
  // The demuxer clears two canvases before it looks at data. Lossless data has no best ratio (a picture of
  // one colour takes no bit a pixel); no encoder comes near this one where it would matter.
  constexpr std::uint64_t kRatio = 65536;
  check_ratio(source, ImageFormat::kWebp,
              static_cast<std::uint64_t>(header.width_px) * static_cast<std::uint64_t>(header.height_px) * 3,
              source.bytes.size(), kRatio);
  const WebPData data{source.data(), source.bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> decoder(
      WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  WebPAnimInfo info;
  if (decoder == nullptr || WebPAnimDecoderGetInfo(decoder.get(), &info) == 0)
    fail_damaged(source, ImageFormat::kWebp, "damaged animation");
  if (static_cast<int>(info.canvas_width) != header.width_px ||
      static_cast<int>(info.canvas_height) != header.height_px)
    fail_damaged(source, ImageFormat::kWebp, "two different canvas sizes");
  const std::uint64_t pixels = std::uint64_t{info.canvas_width} * info.canvas_height;
  if (choice.is_all())
    check_frames(source, ImageFormat::kWebp,
                 {.n_drawn = info.frame_count,
                  .n_kept = info.frame_count,
                  .drawn_pixels = info.frame_count * pixels,
                  .kept_pixels = info.frame_count * pixels});
  if (info.frame_count == 0) fail_damaged(source, ImageFormat::kWebp, "an animation without frames");
  std::vector<Frame> frames;
  FrameCount count;
  int shown_until_ms = 0;
  for (std::size_t index = 0; index < info.frame_count && !choice.is_past(index); ++index) {
    const bool is_kept = choice.has(index);
    count.add(pixels, pixels, is_kept);
    check_frames(source, ImageFormat::kWebp, count);
    std::uint8_t* canvas = nullptr;
    int until_ms = 0;
    if (WebPAnimDecoderGetNext(decoder.get(), &canvas, &until_ms) == 0)
      fail_damaged(source, ImageFormat::kWebp, fmt::format("frame {} is damaged", index));
    if (is_kept) {
      Frame frame{make_image(source, ImageFormat::kWebp, info.canvas_width, info.canvas_height),
                  static_cast<int>(static_cast<std::uint32_t>(until_ms) -  // the sum may wrap
                                   static_cast<std::uint32_t>(shown_until_ms))};
      put_canvas(canvas, source.background, frame.image);
      frames.push_back(std::move(frame));
    }
    shown_until_ms = until_ms;
  }
  return frames;
}

Image decode(const Source& source) {
  const Header header = probe(source);
  constexpr int kFirst[] = {0};
  if (header.is_animated) return std::move(read_frames(source, header, FrameChoice(kFirst)).front().image);
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) fail(ErrorCode::kInternal, "libwebp has another version");
  Image image = make_image(source, ImageFormat::kWebp, static_cast<std::uint64_t>(header.width_px),
                           static_cast<std::uint64_t>(header.height_px));
  PoolVector<std::uint8_t> rgba(header.has_alpha ? image.rgb.size() / 3 * 4
                                                 : 0);  // libwebp fills it row by row
  config.output.colorspace = header.has_alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = header.has_alpha ? rgba.data() : image.rgb.data();
  config.output.u.RGBA.stride = header.width_px * (header.has_alpha ? 4 : 3);
  config.output.u.RGBA.size = header.has_alpha ? rgba.size() : image.rgb.size();
  const VP8StatusCode status = WebPDecode(source.data(), source.bytes.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) fail_status(source, status);
  if (header.has_alpha) put_canvas(rgba.data(), source.background, image);
  return image;
}

std::vector<Frame> decode_animation(const Source& source, const FrameChoice& choice) {
  const Header header = probe(source);
  if (header.is_animated) return read_frames(source, header, choice);
  if (!choice.has(0)) return {};
  return {Frame{decode(source), 0}};
}

std::vector<int> durations_ms(const Source& source) {
  if (!probe(source).is_animated) return {0};
  const WebPData data{source.data(), source.bytes.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&data), WebPDemuxDelete);
  if (demuxer == nullptr) fail_damaged(source, ImageFormat::kWebp, "damaged animation");
  const std::uint32_t n_frames = WebPDemuxGetI(demuxer.get(), WEBP_FF_FRAME_COUNT);
  if (n_frames == 0) fail_damaged(source, ImageFormat::kWebp, "an animation without frames");
  check_frames(source, ImageFormat::kWebp, {.n_drawn = n_frames});
  std::vector<int> out;
  WebPIterator frame{};
  for (bool more = WebPDemuxGetFrame(demuxer.get(), 1, &frame) != 0; more;
       more = WebPDemuxNextFrame(&frame) != 0)
    out.push_back(frame.duration);
  WebPDemuxReleaseIterator(&frame);
  if (out.size() != n_frames) fail_damaged(source, ImageFormat::kWebp, "damaged animation");
  return out;
}

}  // namespace

const Codec kWebp{ImageFormat::kWebp, matches, probe, decode, durations_ms, decode_animation};

}  // namespace triptych::codec
