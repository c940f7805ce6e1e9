// The steps of Hugging Face image processors beside resizing, as their NumPy/Pillow versions do them
// (transformers 5.24, image_transforms): sizes, crops, padding, and the change from 8-bit RGB to normalised
// float planes.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "media/image.h"

namespace triptych {

struct SizePx {
  int width_px = 0;
  int height_px = 0;
  friend bool operator==(const SizePx&, const SizePx&) = default;
};

/// The size with its shorter side at edge_px, the longer one truncated: int(edge * long / short).
SizePx shortest_edge_size(SizePx size, int edge_px);

/// The part that starts at (left, top); it must lie inside the picture.
Image crop(const Image& image, int left, int top, SizePx size);

/// The middle of the picture, top = floor((H - h) / 2), left = floor((W - w) / 2). Where the picture is
/// smaller it is padded with black as the reference pads with zeros.
Image center_crop(const Image& image, SizePx size);

/// What center_crop keeps of one axis: `length` pixels from `source` on.
struct CropAxis {
  int source, target, length;
};
CropAxis center_crop_axis(int have_px, int want_px);

struct PaddingPx {
  int left = 0, top = 0, right = 0, bottom = 0;
};

/// The picture with a border of one colour.
Image pad(const Image& image, PaddingPx padding, Rgb8 colour);

/// The smallest square around the picture, which stands at floor((side - width) / 2), floor((side - height) /
/// 2): the odd row or column goes to the bottom or the right.
Image pad_to_square(const Image& image, Rgb8 colour);

/// int(255 * mean) of each channel: the padding colour of LLaVA.
Rgb8 mean_colour(const std::array<double, 3>& mean);

struct NormalizeOptions {
  bool do_rescale = true;
  double rescale_factor = 0.00392156862745098;  // 1/255 as the published files write it
  bool do_normalize = true;
  std::array<double, 3> mean{0.0, 0.0, 0.0};
  std::array<double, 3> std{1.0, 1.0, 1.0};
};

/// Writes [3, H, W]: x = float32(double(px) * rescale_factor); (x - float32(mean)) / float32(std), in
/// float32. out must have exactly 3 * H * W elements.
void normalize_chw(const Image& image, const NormalizeOptions& options, std::span<float> out);

/// The same into a new vector.
std::vector<float> normalize_chw(const Image& image, const NormalizeOptions& options);

}  // namespace triptych
