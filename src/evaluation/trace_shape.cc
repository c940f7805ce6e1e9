#include "evaluation/trace_shape.h"

#include <algorithm>

namespace triptych {

std::int64_t n_stacked_pictures(const std::vector<MediaItem>& items) {
  std::int64_t n = 0;
  for (const MediaItem& item : items) {
    if (item.pixels.view().rank() < 3) return 0;
    n += item.pixels.view().rank() == 3 ? 1 : item.pixels.view().dim(0);
  }
  return n;
}

Shape batched_shape(std::int64_t n_rows, std::int64_t width, std::int64_t n_tokens, std::int64_t n_pictures) {
  if (n_rows == n_tokens) return {1, n_rows, width};
  if (n_pictures == 0 || n_rows % n_pictures != 0 || n_rows == n_pictures) return {n_rows, width};
  return {n_pictures, n_rows / n_pictures, width};
}

std::vector<Tensor> batch_pixels(const std::vector<MediaItem>& items) {
  std::vector<Tensor> out;
  const Shape& first = items.front().pixels.shape();
  const bool is_rows = first.rank() == 2;
  const auto fits = [&](const MediaItem& item) {
    const Shape& shape = item.pixels.shape();
    return is_rows ? shape.rank() == 2 && shape.dim(1) == first.dim(1) : shape == first;
  };
  if (!std::all_of(items.begin(), items.end(), fits)) {
    for (const MediaItem& item : items) out.push_back(Tensor::copy_of(item.pixels));
    return out;
  }
  std::vector<std::int64_t> dims(first.dims().begin(), first.dims().end());
  if (is_rows) {
    dims[0] = 0;
    for (const MediaItem& item : items) dims[0] += item.pixels.view().dim(0);
  } else {
    dims.insert(dims.begin(), static_cast<std::int64_t>(items.size()));
  }
  const Tensor& all = out.emplace_back(DType::kF32, Shape(dims));
  float* at = all.f32();
  for (const MediaItem& item : items) at = std::copy_n(item.pixels.f32(), item.pixels.view().numel(), at);
  return out;
}

}  // namespace triptych
