// What the decoders share. Each format is one file that fills a Codec; image_decode.cc chooses among them by
// content.
#pragma once

#include <algorithm>
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

/// Which frames of an animation are kept: all, or those with these indices (ascending).
class FrameChoice {
 public:
  FrameChoice() = default;
  explicit FrameChoice(std::span<const int> indices) : is_all_(false), indices_(indices) {}
  bool is_all() const noexcept { return is_all_; }
  bool has(std::size_t index) const noexcept {
    return is_all_ || std::binary_search(indices_.begin(), indices_.end(), static_cast<std::int64_t>(index));
  }
  /// Nothing is wanted from here on.
  bool is_past(std::size_t index) const noexcept {
    return !is_all_ && (indices_.empty() || static_cast<std::int64_t>(index) > indices_.back());
  }

 private:
  bool is_all_ = true;
  std::span<const int> indices_;
};

struct Codec {
  ImageFormat format;
  bool (*matches)(std::span<const std::byte> bytes);
  Header (*probe)(const Source& source);  // checks the limits
  Image (*decode)(const Source& source);  // orientation not applied; checks the limits too
  // The next two are nullptr where the format has still pictures only.
  std::vector<int> (*durations_ms)(const Source& source) = nullptr;
  std::vector<Frame> (*decode_animation)(const Source& source, const FrameChoice& choice) = nullptr;
};

extern const Codec kPng, kJpeg, kWebp, kGif, kTiff, kBmp, kPnm;

/// Throws Error(kInvalidFile) "name: PNG: fault".
[[noreturn]] void fail_damaged(const Source& source, ImageFormat format, std::string_view fault);

/// Throws Error(kUnsupported) "name: PNG: what is not supported".
[[noreturn]] void fail_unsupported(const Source& source, ImageFormat format, std::string_view what);

/// Throws Error(kInvalidFile) for a side of 0 and Error(kInvalidArgument) over a limit.
void check_size(const Source& source, ImageFormat format, std::uint64_t width_px, std::uint64_t height_px);

/// Throws Error(kInvalidFile) when the file cannot hold so many bytes of pixels: n_stored bytes of the
/// format's best compression give n_stored * best_ratio. Call before memory for pixels is taken.
void check_ratio(const Source& source, ImageFormat format, std::uint64_t pixel_bytes, std::uint64_t n_stored,
                 std::uint64_t best_ratio);

/// check_size, then an image of that size whose pixels are not initialised: its memory grows with the rows
/// written.
Image make_image(const Source& source, ImageFormat format, std::uint64_t width_px, std::uint64_t height_px);

/// What the frames of an animation have cost so far.
struct FrameCount {
  std::size_t n_drawn = 0;
  std::size_t n_kept = 0;
  std::uint64_t drawn_pixels = 0;  // of the frames themselves where these are larger than the canvas
  std::uint64_t kept_pixels = 0;

  /// One more frame.
  void add(std::uint64_t canvas_pixels, std::uint64_t frame_pixels, bool is_kept) {
    ++n_drawn;
    drawn_pixels += std::max(canvas_pixels, frame_pixels);
    if (!is_kept) return;
    ++n_kept;
    kept_pixels += canvas_pixels;
  }
};

/// Throws Error(kInvalidArgument) when these frames are over the limits; call before memory for the last of
/// them is taken.
void check_frames(const Source& source, ImageFormat format, const FrameCount& count);

}  // namespace triptych::codec
