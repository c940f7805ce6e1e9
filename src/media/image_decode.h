// Encoded pictures to RGB. The format is taken from the bytes, never from a name or a MIME type.
//
// PNG (libpng), JPEG (libjpeg-turbo), WebP (libwebp), GIF (giflib), TIFF (libtiff), BMP and PBM/PGM/PPM (own
// parsers). The result is what Pillow 13 gives after ImageOps.exif_transpose, with three choices of this
// project: transparent pixels are laid over a background colour (white unless told), 16-bit grey is scaled by
// 1/257 instead of clipped, and damaged files are refused. docs/images.md lists every rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "media/image.h"
#include "media/limits.h"

namespace triptych {

enum class ImageFormat { kPng, kJpeg, kWebp, kGif, kTiff, kBmp, kPnm };

/// "PNG", "JPEG", "WebP", "GIF", "TIFF", "BMP", "PNM".
std::string_view to_string(ImageFormat format) noexcept;

struct ImageInfo {
  ImageFormat format = ImageFormat::kPng;
  int width_px = 0;  // as decode_image will return it: after orientation
  int height_px = 0;
  int orientation = 1;  // EXIF orientation of the stored pixels, 1..8; 1 is upright
  bool has_alpha = false;
  bool is_animated = false;  // more than one frame (GIF, WebP)
};

/// Reads the format and the size without decoding pixels. name stands in error messages (a file name, "image
/// 2"). Throws Error: kInvalidFile (not an image, or a damaged header), kUnsupported (a format or variant
/// that is recognised but not decoded), kInvalidArgument (over a limit).
ImageInfo probe_image(std::span<const std::byte> bytes, const DecodeLimits& limits, std::string_view name);

/// Decodes to RGB: orientation applied, alpha laid over background, first frame of an animation. Errors as
/// probe_image; truncated or damaged data is kInvalidFile (also a JPEG that lacks only its end marker and a
/// PNG without IEND). Thread-safe; nothing is printed.
Image decode_image(std::span<const std::byte> bytes, const DecodeLimits& limits, std::string_view name,
                   Rgb8 background = kWhite);

/// All frames of a GIF or WebP animation, each a complete canvas; any other picture is one frame of duration
/// 0. Errors as decode_image; a later frame that is damaged is an error too.
std::vector<Frame> decode_animation(std::span<const std::byte> bytes, const DecodeLimits& limits,
                                    std::string_view name, Rgb8 background = kWhite);

/// What an animation shows and for how long, without decoding its pixels.
struct AnimationInfo {
  int width_px = 0;  // as ImageInfo
  int height_px = 0;
  std::vector<int> durations_ms;  // of each frame, as the file says; one 0 for a still picture
};

/// Walks through the whole file. Errors as probe_image; a file that is cut short is kInvalidFile.
AnimationInfo probe_animation(std::span<const std::byte> bytes, const DecodeLimits& limits,
                              std::string_view name);

/// The frames with these indices (ascending, repeats allowed), one image each. Frames after the last of them
/// are not looked at. Errors as decode_animation, and kInvalidFile for an index that the file does not have.
std::vector<Image> decode_frames(std::span<const std::byte> bytes, const DecodeLimits& limits,
                                 std::string_view name, std::span<const int> indices,
                                 Rgb8 background = kWhite);

}  // namespace triptych
