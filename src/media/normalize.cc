// Sizes, crops, padding and normalisation as transformers 5.24 does them with NumPy (image_transforms.py; the
// square padding is LlavaImageProcessor's).
#include "media/normalize.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace triptych {
namespace {

std::size_t n_bytes(SizePx size) {
  return static_cast<std::size_t>(size.width_px) * static_cast<std::size_t>(size.height_px) * 3;
}

Image filled(SizePx size, Rgb8 colour) {
  if (colour == kBlack) return {size.width_px, size.height_px, PoolVector<std::uint8_t>(n_bytes(size), 0)};
  Image image{size.width_px, size.height_px, PoolVector<std::uint8_t>(n_bytes(size))};
  for (std::size_t i = 0; i < image.rgb.size(); i += 3) {
    image.rgb[i] = colour.r;
    image.rgb[i + 1] = colour.g;
    image.rgb[i + 2] = colour.b;
  }
  return image;
}

struct Offset {
  int left, top;
};

// Copies a rectangle that lies inside both pictures.
void copy_rectangle(const Image& from, Offset source, Image& to, Offset target, SizePx size) {
  const std::size_t bytes = static_cast<std::size_t>(size.width_px) * 3;
  for (int y = 0; y < size.height_px; ++y)
    std::memcpy(to.rgb.data() + static_cast<std::size_t>(target.top + y) * to.row_bytes() +
                    static_cast<std::size_t>(target.left) * 3,
                from.rgb.data() + static_cast<std::size_t>(source.top + y) * from.row_bytes() +
                    static_cast<std::size_t>(source.left) * 3,
                bytes);
}

}  // namespace

// A short axis is padded with ceil((want - have) / 2) in front; the crop of the padded picture then starts at
// 0.
CropAxis center_crop_axis(int have_px, int want_px) {
  if (want_px > have_px) return {0, (want_px - have_px + 1) / 2, have_px};
  return {(have_px - want_px) / 2, 0, want_px};
}

SizePx shortest_edge_size(SizePx size, int edge_px) {
  TRIPTYCH_CHECK(size.width_px >= 1 && size.height_px >= 1 && edge_px >= 1);
  const bool is_tall = size.width_px <= size.height_px;
  const int short_px = is_tall ? size.width_px : size.height_px;
  const int long_px = is_tall ? size.height_px : size.width_px;
  // Python: int(edge * long / short), the product exact, the quotient a double.
  const double quotient =
      static_cast<double>(static_cast<std::int64_t>(edge_px) * long_px) / static_cast<double>(short_px);
  if (quotient > 1e9)
    fail(ErrorCode::kInvalidArgument, "image of {} x {} pixels: too narrow to resize its shorter side to {}",
         size.width_px, size.height_px, edge_px);
  const int new_long = static_cast<int>(quotient);
  return is_tall ? SizePx{edge_px, new_long} : SizePx{new_long, edge_px};
}

Image crop(const Image& image, int left, int top, SizePx size) {
  TRIPTYCH_CHECK(left >= 0 && top >= 0 && size.width_px >= 0 && size.height_px >= 0 &&
                     size.width_px <= image.width_px - left && size.height_px <= image.height_px - top,
                 "crop of {} x {} at ({}, {}) from {} x {}", size.width_px, size.height_px, left, top,
                 image.width_px, image.height_px);
  Image out{size.width_px, size.height_px, PoolVector<std::uint8_t>(n_bytes(size))};
  copy_rectangle(image, {left, top}, out, {0, 0}, size);
  return out;
}

Image center_crop(const Image& image, SizePx size) {
  TRIPTYCH_CHECK(size.width_px >= 1 && size.height_px >= 1);
  const CropAxis x = center_crop_axis(image.width_px, size.width_px);
  const CropAxis y = center_crop_axis(image.height_px, size.height_px);
  Image out = filled(size, kBlack);
  copy_rectangle(image, {x.source, y.source}, out, {x.target, y.target}, {x.length, y.length});
  return out;
}

Image pad(const Image& image, PaddingPx padding, Rgb8 colour) {
  TRIPTYCH_CHECK(padding.left >= 0 && padding.top >= 0 && padding.right >= 0 && padding.bottom >= 0);
  Image out =
      filled({padding.left + image.width_px + padding.right, padding.top + image.height_px + padding.bottom},
             colour);
  copy_rectangle(image, {0, 0}, out, {padding.left, padding.top}, {image.width_px, image.height_px});
  return out;
}

Image pad_to_square(const Image& image, Rgb8 colour) {
  const int side = std::max(image.width_px, image.height_px);
  const int left = (side - image.width_px) / 2;
  const int top = (side - image.height_px) / 2;
  return pad(image, {left, top, side - image.width_px - left, side - image.height_px - top}, colour);
}

Rgb8 mean_colour(const std::array<double, 3>& mean) {
  const auto byte = [](double value) {
    return static_cast<std::uint8_t>(std::clamp(static_cast<int>(value * 255), 0, 255));
  };
  return {byte(mean[0]), byte(mean[1]), byte(mean[2])};
}

void normalize_chw(const Image& image, const NormalizeOptions& options, std::span<float> out) {
  TRIPTYCH_CHECK(out.size() == image.rgb.size(), "normalize: {} elements for {} values", out.size(),
                 image.rgb.size());
  const std::size_t n_px = image.rgb.size() / 3;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    // A byte has 256 values: each channel is a table, computed exactly as the reference computes a pixel.
    std::array<float, 256> table;
    const auto mean = static_cast<float>(options.mean[channel]);
    const auto std = static_cast<float>(options.std[channel]);
    for (std::size_t px = 0; px < table.size(); ++px) {
      auto x = static_cast<float>(options.do_rescale ? static_cast<double>(px) * options.rescale_factor
                                                     : static_cast<double>(px));
      if (options.do_normalize) x = (x - mean) / std;
      table[px] = x;
    }
    const std::uint8_t* from = image.rgb.data() + channel;
    float* to = out.data() + channel * n_px;
    for (std::size_t i = 0; i < n_px; ++i) to[i] = table[from[i * 3]];
  }
}

std::vector<float> normalize_chw(const Image& image, const NormalizeOptions& options) {
  std::vector<float> out(image.rgb.size());
  normalize_chw(image, options, out);
  return out;
}

}  // namespace triptych
