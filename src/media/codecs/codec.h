// What the decoders share. Each format is one file that fills a Codec; image_decode.cc chooses among them by
// content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "media/image.h"
#include "media/image_decode.h"
#include "media/limits.h"

namespace triptych::codec {

/// An encoded picture and how to treat it.
struct Source {
  std::span<const std::byte> bytes;
  const DecodeLimits& limits;
  std::string_view name;  // for messages
  Rgb8 background = kWhite;

  const std::uint8_t* data() const noexcept { return reinterpret_cast<const std::uint8_t*>(bytes.data()); }
};

/// Size as stored (before orientation) and what else a header tells.
struct Header {
  int width_px = 0;
  int height_px = 0;
  int orientation = 1;
  bool has_alpha = false;
  bool is_animated = false;
};

struct Codec {
  ImageFormat format;
  bool (*matches)(std::span<const std::byte> bytes);
  Header (*probe)(const Source& source);  // checks the limits
  Image (*decode)(const Source& source);  // orientation not applied; checks the limits too
  std::vector<Frame> (*decode_animation)(
      const Source& source);  // nullptr: the format has still pictures only
};

extern const Codec kPng, kJpeg, kWebp, kGif, kTiff, kBmp, kPnm;

/// Throws Error(kInvalidFile) "name: PNG: fault".
[[noreturn]] void fail_damaged(const Source& source, ImageFormat format, std::string_view fault);

/// Throws Error(kUnsupported) "name: PNG: what is not supported".
[[noreturn]] void fail_unsupported(const Source& source, ImageFormat format, std::string_view what);

/// Throws Error(kInvalidFile) for a side of 0 and Error(kInvalidArgument) over a limit.
void check_size(const Source& source, ImageFormat format, std::uint64_t width_px, std::uint64_t height_px);

/// check_size, then a black image of that size.
Image make_image(const Source& source, ImageFormat format, std::uint64_t width_px, std::uint64_t height_px);

/// Checks that n_frames of that size are within the limits; call before memory for the last of them is taken.
void check_frames(const Source& source, ImageFormat format, std::size_t n_frames,
                  std::uint64_t pixels_per_frame);

}  // namespace triptych::codec
