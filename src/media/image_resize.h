// Resizing, bit for bit as Image.resize of Pillow 13 on 8-bit RGB: two passes (horizontal first, as a rule),
// antialiased when shrinking, each pass rounded to 8 bits. The recipe is in image_resize.cc. Pillow before 13
// never ran the vertical pass first, which changes the last bit where a picture loses much more height than
// width.
#pragma once

#include <string_view>

#include "media/image.h"

namespace triptych {

class ThreadPool;

/// The numbers are Pillow's (Image.Resampling), which preprocessor_config.json stores under "resample".
enum class Filter { kNearest = 0, kLanczos = 1, kBilinear = 2, kBicubic = 3, kBox = 4, kHamming = 5 };

/// "nearest", "lanczos", "bilinear", "bicubic", "box", "hamming".
std::string_view to_string(Filter filter) noexcept;

/// The filter with Pillow's number; throws Error(kUnsupported) for another number.
Filter filter_from_pillow(int code);

/// The picture at width_px x height_px (each >= 1). pool == nullptr runs on the calling thread; the result
/// does not depend on the number of threads. The picture must have pixels.
Image resize(const Image& image, int width_px, int height_px, Filter filter, ThreadPool* pool = nullptr);

/// A rectangle of a resized picture.
struct PartOfResized {
  int width_px, height_px;  // of the whole
  int left_px, top_px, part_width_px, part_height_px;
};

/// That part of resize(image, part.width_px, part.height_px), which is never made: memory and time follow the
/// picture and the part alone. The part must lie inside.
Image resize_part(const Image& image, const PartOfResized& part, Filter filter, ThreadPool* pool = nullptr);

}  // namespace triptych
