// Resizing as Pillow does it (src/libImaging/Resample.c and Geometry.c, read at revision 4e5f09f; written
// anew). Per axis and output index i: scale = in / out, fs = max(scale, 1), support = filter's support * fs,
// center = (i + 0.5) * scale, taps lo..hi-1 with lo = max(0, int(center - support + 0.5)), hi = min(in,
// int(center + support + 0.5)), weights f((k + lo - center + 0.5) / fs) divided by their sum, then 22-bit
// fixed point rounded half away from zero. All in double, in exactly this order of operations. An axis that
// keeps its size is not touched.
#include "media/image_resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <utility>

#include "base/cpu_info.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "media/kernels/resize_kernels.h"
#include "media/normalize.h"

namespace triptych {
namespace {

namespace rk = resize_kernels;

constexpr std::array<std::pair<Filter, std::string_view>, 6> kNames{{{Filter::kNearest, "nearest"},
                                                                     {Filter::kLanczos, "lanczos"},
                                                                     {Filter::kBilinear, "bilinear"},
                                                                     {Filter::kBicubic, "bicubic"},
                                                                     {Filter::kBox, "box"},
                                                                     {Filter::kHamming, "hamming"}}};

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double weight_at(Filter filter, double x) {
  switch (filter) {
    case Filter::kBox:
      return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    case Filter::kBilinear:
      x = std::abs(x);
      return x < 1.0 ? 1.0 - x : 0.0;
    case Filter::kHamming:
      x = std::abs(x);
      if (x == 0.0) return 1.0;
      if (x >= 1.0) return 0.0;
      // Pillow writes these two constants in single precision.
      return sinc(x) * (double{0.54F} + double{0.46F} * std::cos(x * std::numbers::pi));
    case Filter::kBicubic: {
      constexpr double a = -0.5;
      x = std::abs(x);
      if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
      if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
      return 0.0;
    }
    case Filter::kLanczos:
      return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3.0) : 0.0;
    case Filter::kNearest:
      break;
  }
  TRIPTYCH_CHECK(false, "filter has no weights");
}

double support_of(Filter filter) {
  switch (filter) {
    case Filter::kBox:
      return 0.5;
    case Filter::kBicubic:
      return 2.0;
    case Filter::kLanczos:
      return 3.0;
    default:
      return 1.0;
  }
}

std::int32_t to_fixed_point(double weight) {
  const double scaled = weight * (1 << rk::kPrecisionBits);
  return static_cast<std::int32_t>(weight < 0 ? scaled - 0.5 : scaled + 0.5);
}

// Owns the weights of one axis.
class AxisTaps {
 public:
  // Of the n outputs from first_out on. With keep_inside, groups of padded taps that would reach past the
  // source start earlier, with zero weights in front.
  struct Axis {
    int in, out, first_out, n;
  };
  AxisTaps(const Axis& axis, Filter filter, bool keep_inside);
  rk::Taps view() const {
    return {first_.data(), count_.data(), weights_.data(), packed_.data(), static_cast<int>(first_.size()),
            n_taps_};
  }
  int n_taps() const { return n_taps_; }

 private:
  void pack();

  int n_taps_ = 0;
  std::vector<std::int32_t> first_, count_, weights_;
  std::vector<std::int16_t> packed_;
};

AxisTaps::AxisTaps(const Axis& axis, Filter filter, bool keep_inside) {
  const int in = axis.in;
  const double scale = static_cast<double>(in) / axis.out;
  const auto center_of = [&](std::size_t i) {
    return (static_cast<double>(axis.first_out + static_cast<int>(i)) + 0.5) * scale;
  };
  const double stretch = std::max(scale, 1.0);
  const double support = support_of(filter) * stretch;
  const double inverse_stretch = 1.0 / stretch;
  const auto n_out = static_cast<std::size_t>(axis.n);
  first_.resize(n_out);
  count_.resize(n_out);
  int most = 1;
  for (std::size_t i = 0; i < n_out; ++i) {
    const double center = center_of(i);
    const int lo = std::max(static_cast<int>(center - support + 0.5), 0);
    const int hi = std::min(static_cast<int>(center + support + 0.5), in);
    first_[i] = lo;
    count_[i] = hi - lo;
    most = std::max(most, hi - lo);
  }
  n_taps_ = (most + rk::kGroup - 1) / rk::kGroup * rk::kGroup;
  weights_.assign(n_out * static_cast<std::size_t>(n_taps_), 0);
  std::vector<double> exact(static_cast<std::size_t>(most));
  for (std::size_t i = 0; i < n_out; ++i) {
    const double center = center_of(i);
    const int lo = first_[i];
    const auto count = static_cast<std::size_t>(count_[i]);
    double sum = 0.0;
    for (std::size_t k = 0; k < count; ++k) {
      exact[k] =
          weight_at(filter, (static_cast<double>(static_cast<int>(k) + lo) - center + 0.5) * inverse_stretch);
      sum += exact[k];
    }
    const int shift = keep_inside ? std::clamp(lo + n_taps_ - in, 0, lo) : 0;
    std::int32_t* weights = weights_.data() + i * static_cast<std::size_t>(n_taps_) + shift;
    for (std::size_t k = 0; k < count; ++k)
      weights[k] = to_fixed_point(sum != 0.0 ? exact[k] / sum : exact[k]);
    first_[i] -= shift;
    count_[i] += shift;
  }
  pack();
}

void AxisTaps::pack() {
  packed_.resize(weights_.size() * 2);
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    std::int16_t* group = packed_.data() + i / rk::kGroup * (rk::kGroup * 2) + i % rk::kGroup;
    group[0] = static_cast<std::int16_t>(weights_[i] & ((1 << rk::kSplitBits) - 1));
    group[rk::kGroup] = static_cast<std::int16_t>(weights_[i] >> rk::kSplitBits);
  }
}

struct Kernels {
  rk::HorizontalFn horizontal = rk::horizontal_scalar;
  rk::VerticalFn vertical = rk::vertical_scalar;
};

Kernels kernels() {
  const CpuFeatures features = active_features();
#if defined(__x86_64__)
  if (features.has_all(Isa::kAvx512)) return {rk::horizontal_avx512, rk::vertical_avx512};
  if (features.has_all(Isa::kAvx2)) return {rk::horizontal_avx2, rk::vertical_avx2};
#elif defined(__aarch64__)
  if (features.has_all(Isa::kNeon)) return {rk::horizontal_neon, rk::vertical_neon};
#endif
  static_cast<void>(features);
  return {};
}

template <typename Body>
void for_range(ThreadPool* pool, std::size_t n, std::size_t grain, const Body& body) {
  if (pool == nullptr || n <= grain) return body(std::size_t{0}, n);
  pool->parallel_for(n, grain, [&](std::size_t begin, std::size_t end, int) { body(begin, end); });
}

struct Size {
  int width_px, height_px;
};

struct Plane {  // RGB rows without gaps
  const std::uint8_t* data;
  int width_px, height_px;
  std::size_t row_bytes() const { return static_cast<std::size_t>(width_px) * 3; }
};

void horizontal_pass(const Plane& in, const AxisTaps& taps, rk::HorizontalFn kernel, ThreadPool* pool,
                     std::uint8_t* out) {
  // A kernel reads a little past a row. Inside the picture that is the next row; the last rows are copied
  // first.
  const std::size_t readable =
      static_cast<std::size_t>(std::max(in.width_px, taps.n_taps())) * 3 + rk::kReadSlackBytes;
  const std::size_t total = in.row_bytes() * static_cast<std::size_t>(in.height_px);
  const std::size_t out_row_bytes = static_cast<std::size_t>(taps.view().n_out) * 3;
  const auto n_blocks = static_cast<std::size_t>((in.height_px + rk::kMaxRows - 1) / rk::kMaxRows);
  for_range(pool, n_blocks, 4, [&](std::size_t begin, std::size_t end) {
    std::vector<std::uint8_t> copies;
    for (std::size_t block = begin; block < end; ++block) {
      const std::size_t row = block * rk::kMaxRows;
      const int n_rows = std::min(rk::kMaxRows, in.height_px - static_cast<int>(row));
      const std::uint8_t* src[rk::kMaxRows];
      std::uint8_t* dst[rk::kMaxRows];
      for (std::size_t r = 0; r < static_cast<std::size_t>(n_rows); ++r) {
        const std::size_t offset = (row + r) * in.row_bytes();
        src[r] = in.data + offset;
        dst[r] = out + (row + r) * out_row_bytes;
        if (total - offset >= readable) continue;
        copies.resize(readable * rk::kMaxRows);
        std::memcpy(copies.data() + r * readable, src[r], in.row_bytes());
        src[r] = copies.data() + r * readable;
      }
      kernel({taps.view(), src, dst, n_rows});
    }
  });
}

void vertical_pass(const Plane& in, const AxisTaps& taps, rk::VerticalFn kernel, ThreadPool* pool,
                   std::uint8_t* out) {
  const std::size_t row_bytes = in.row_bytes();
  for_range(pool, static_cast<std::size_t>(taps.view().n_out), 16, [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row)
      kernel({taps.view(), in.data, static_cast<std::ptrdiff_t>(row_bytes), static_cast<int>(row),
              out + row * row_bytes, static_cast<int>(row_bytes)});
  });
}

// Since Pillow 13 the vertical pass comes first when the height shrinks by more than twice what the width
// does. The order shows in the last bit, because each pass rounds to 8 bits.
bool vertical_first(Size in, Size out) {
  const auto less_height = std::int64_t{in.height_px} - out.height_px;
  const auto less_width = std::int64_t{in.width_px} - out.width_px;
  return less_height > 0 && less_height > 2 * less_width;
}

// Source index of each output index: Pillow steps through the source by repeated addition in double.
std::vector<std::size_t> nearest_indices(const AxisTaps::Axis& axis) {
  const double step = static_cast<double>(axis.in) / axis.out;
  double at = step * 0.5;
  for (int i = 0; i < axis.first_out; ++i) at += step;
  std::vector<std::size_t> indices(static_cast<std::size_t>(axis.n));
  for (std::size_t& index : indices) {
    index = static_cast<std::size_t>(std::min(static_cast<int>(at), axis.in));  // == in: outside, see below
    at += step;
  }
  return indices;
}

// A source index past the end (sums of steps can round upwards) leaves the pixel black, as in Pillow.
void resize_nearest(const Image& in, const AxisTaps::Axis& across, const AxisTaps::Axis& down, Image& out) {
  const auto columns = nearest_indices(across);
  const auto rows = nearest_indices(down);
  std::uint8_t* to = out.rgb.data();
  for (const std::size_t row : rows) {
    const std::uint8_t* line = in.rgb.data() + row * in.row_bytes();
    for (const std::size_t column : columns) {
      if (row < static_cast<std::size_t>(in.height_px) && column < static_cast<std::size_t>(in.width_px))
        std::memcpy(to, line + column * 3, 3);
      to += 3;
    }
  }
}

}  // namespace

std::string_view to_string(Filter filter) noexcept {
  for (const auto& [value, name] : kNames)
    if (value == filter) return name;
  return "unknown";
}

Filter filter_from_pillow(int code) {
  for (const auto& [value, name] : kNames)
    if (static_cast<int>(value) == code) return value;
  fail(ErrorCode::kUnsupported, "resample: expected a Pillow filter number 0..5, got {}", code);
}

Image resize_part(const Image& image, const PartOfResized& part, Filter filter, ThreadPool* pool) {
  const auto inside = [](int first, int n, int all) {
    return first >= 0 && n >= 1 && all >= 1 && first <= all - n;
  };
  TRIPTYCH_CHECK(inside(part.left_px, part.part_width_px, part.width_px) &&
                     inside(part.top_px, part.part_height_px, part.height_px),
                 "{} x {} at ({}, {}) of a resize to {} x {}", part.part_width_px, part.part_height_px,
                 part.left_px, part.top_px, part.width_px, part.height_px);
  TRIPTYCH_CHECK(image.width_px >= 1 && image.height_px >= 1, "resize of an empty image");
  TRIPTYCH_CHECK(image.rgb.size() == image.row_bytes() * static_cast<std::size_t>(image.height_px));
  const AxisTaps::Axis across{image.width_px, part.width_px, part.left_px, part.part_width_px};
  const AxisTaps::Axis down{image.height_px, part.height_px, part.top_px, part.part_height_px};
  const bool change_width = across.in != across.out;
  const bool change_height = down.in != down.out;
  // An axis that keeps its size is not touched, only cut.
  Image cut;
  const Image* source = &image;
  if ((!change_width && across.n != across.in) || (!change_height && down.n != down.in)) {
    cut = crop(image, change_width ? 0 : across.first_out, change_height ? 0 : down.first_out,
               {change_width ? across.in : across.n, change_height ? down.in : down.n});
    source = &cut;
  }
  if (!change_width && !change_height) return *source;
  Image out{across.n, down.n, {}};
  out.rgb.resize(out.row_bytes() * static_cast<std::size_t>(out.height_px));
  if (filter == Filter::kNearest) {
    const auto uncut = [](const AxisTaps::Axis& axis) {  // indices into `cut`
      return axis.in == axis.out ? AxisTaps::Axis{axis.n, axis.n, 0, axis.n} : axis;
    };
    resize_nearest(*source, uncut(across), uncut(down), out);
    return out;
  }
  const Kernels run = kernels();
  Plane plane{source->rgb.data(), source->width_px, source->height_px};
  std::unique_ptr<std::uint8_t[]> between;  // what the first of two passes makes
  const auto target = [&](bool is_last, int width, int height) {
    if (is_last) return out.rgb.data();
    between.reset(new std::uint8_t[static_cast<std::size_t>(width) * 3 * static_cast<std::size_t>(height)]);
    return between.get();
  };
  const auto horizontal = [&](bool is_last) {
    const AxisTaps taps(across, filter, true);
    std::uint8_t* to = target(is_last, across.n, plane.height_px);
    horizontal_pass(plane, taps, run.horizontal, pool, to);
    plane = {to, across.n, plane.height_px};
  };
  const auto vertical = [&](bool is_last) {
    const AxisTaps taps(down, filter, false);
    std::uint8_t* to = target(is_last, plane.width_px, down.n);
    vertical_pass(plane, taps, run.vertical, pool, to);
    plane = {to, plane.width_px, down.n};
  };
  const bool is_vertical_first = vertical_first({across.in, down.in}, {across.out, down.out});
  if (change_height && is_vertical_first) vertical(!change_width);
  if (change_width) horizontal(!change_height || is_vertical_first);
  if (change_height && !is_vertical_first) vertical(true);
  return out;
}

Image resize(const Image& image, int width_px, int height_px, Filter filter, ThreadPool* pool) {
  return resize_part(image, {width_px, height_px, 0, 0, width_px, height_px}, filter, pool);
}

}  // namespace triptych
