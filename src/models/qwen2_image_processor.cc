#include "models/qwen2_image_processor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "models/clip_image_processor.h"
#include "nn/config_numbers.h"

namespace triptych {
namespace {

constexpr std::int64_t kMaxAspectRatio = 200;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 40;  // of a limit; keeps all products in range

// Python's round(a / b): halves go to the even integer.
std::int64_t divide_half_even(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  const std::int64_t twice_rest = 2 * (a % b);
  return twice_rest > b || (twice_rest == b && quotient % 2 != 0) ? quotient + 1 : quotient;
}

void read_limit(const JsonView& from, std::string_view key, std::int64_t& to) {
  to = from.get_int(key, to, 1, kMaxPixels);
}

// Grey level -> float of each channel, computed as normalize_chw computes a picture.
using Levels = std::array<float, 3 * 256>;
Levels levels_of(const NormalizeOptions& options) {
  Image ramp{256, 1, {}};
  for (int i = 0; i < 256; ++i) ramp.rgb.insert(ramp.rgb.end(), 3, static_cast<std::uint8_t>(i));
  Levels out;
  normalize_chw(ramp, options, out);
  return out;
}

// One slice in time of all patches of a grid step. `patches` is the first value of the slice in the first
// patch.
struct SliceArgs {
  const Image& image;
  const Levels& levels;
  int patch_px, merge, n_slices;
};
void write_slice(const SliceArgs& a, float* patches, int block_row) {
  const int p = a.patch_px;
  const std::size_t area = static_cast<std::size_t>(p) * static_cast<std::size_t>(p);
  const std::size_t patch_values = 3 * area * static_cast<std::size_t>(a.n_slices);
  const int n_block_cols = a.image.width_px / (p * a.merge);
  std::size_t index =
      static_cast<std::size_t>(block_row) * static_cast<std::size_t>(n_block_cols * a.merge * a.merge);
  for (int block_col = 0; block_col < n_block_cols; ++block_col)
    for (int i = 0; i < a.merge * a.merge; ++i, ++index) {
      const int top = (block_row * a.merge + i / a.merge) * p;
      const int left = (block_col * a.merge + i % a.merge) * p;
      float* to = patches + index * patch_values;
      for (std::size_t channel = 0; channel < 3;
           ++channel, to += area * static_cast<std::size_t>(a.n_slices)) {
        const float* levels = a.levels.data() + channel * 256;
        for (int y = 0; y < p; ++y) {
          const std::uint8_t* from = a.image.rgb.data() +
                                     static_cast<std::size_t>(top + y) * a.image.row_bytes() +
                                     static_cast<std::size_t>(left) * 3 + channel;
          for (int x = 0; x < p; ++x) to[y * p + x] = levels[from[x * 3]];
        }
      }
    }
}

struct Frames {
  std::int64_t n = 1;
  std::int64_t n_counted = 1;  // against the limits, before the size is scaled
};

SizePx fit(SizePx size, const Frames& frames, int factor, PixelLimits limits) {
  TRIPTYCH_CHECK(size.width_px > 0 && size.height_px > 0 && factor > 0 && limits.min_pixels > 0 &&
                     limits.max_pixels > 0 && limits.min_pixels <= kMaxPixels &&
                     limits.max_pixels <= kMaxPixels,
                 "[smart_resize] {}x{}", size.width_px, size.height_px);
  const std::int64_t h = size.height_px;
  const std::int64_t w = size.width_px;
  if (std::max(h, w) > kMaxAspectRatio * std::min(h, w))
    fail(ErrorCode::kInvalidArgument,
         "a picture of {}x{} pixels is too narrow: one side may be at most {} times as long as the other", w,
         h, kMaxAspectRatio);
  std::int64_t new_h = divide_half_even(h, factor) * factor;
  std::int64_t new_w = divide_half_even(w, factor) * factor;
  const auto n = static_cast<double>(frames.n);
  const double area = n * static_cast<double>(h * w);
  const double rounded = static_cast<double>(frames.n_counted) * static_cast<double>(new_h * new_w);
  const auto scaled = [&](double (*whole)(double), double length) {
    return static_cast<std::int64_t>(whole(length / factor)) * factor;
  };
  if (rounded > static_cast<double>(limits.max_pixels)) {
    const double beta = std::sqrt(area / static_cast<double>(limits.max_pixels));
    new_h = std::max<std::int64_t>(factor, scaled(std::floor, static_cast<double>(h) / beta));
    new_w = std::max<std::int64_t>(factor, scaled(std::floor, static_cast<double>(w) / beta));
  } else if (rounded < static_cast<double>(limits.min_pixels)) {
    const double beta = std::sqrt(static_cast<double>(limits.min_pixels) / area);
    new_h = scaled(std::ceil, static_cast<double>(h) * beta);
    new_w = scaled(std::ceil, static_cast<double>(w) * beta);
  }
  return {static_cast<int>(new_w), static_cast<int>(new_h)};
}

}  // namespace

SizePx smart_resize(SizePx size, int factor, PixelLimits limits) { return fit(size, {}, factor, limits); }

SizePx smart_resize_video(SizePx size, int n_frames, int factor, int temporal_factor, PixelLimits limits) {
  TRIPTYCH_CHECK(n_frames > 0 && temporal_factor > 0, "[smart_resize] {} frames in patches of {}", n_frames,
                 temporal_factor);
  if (size.height_px < factor || size.width_px < factor) {
    const double scale =
        std::max(static_cast<double>(factor) / size.height_px, static_cast<double>(factor) / size.width_px);
    size = {static_cast<int>(size.width_px * scale), static_cast<int>(size.height_px * scale)};
  }
  // Less than a temporal patch is filled up to one (the reference refuses it).
  const std::int64_t n = std::max(n_frames, temporal_factor);
  return fit(size, {.n = n, .n_counted = divide_half_even(n, temporal_factor) * temporal_factor}, factor,
             limits);
}

Qwen2ImageProcessor Qwen2ImageProcessor::for_images(const std::optional<JsonView>& config,
                                                    const Geometry& tower) {
  Qwen2ImageProcessor defaults;
  defaults.limits_ = {.min_pixels = 56 * 56, .max_pixels = 1280 * 28 * 28};
  return defaults.parse(config, tower);
}

Qwen2ImageProcessor Qwen2ImageProcessor::for_videos(const std::optional<JsonView>& config,
                                                    const Geometry& tower) {
  Qwen2ImageProcessor defaults;
  defaults.limits_ = {.min_pixels = 128 * 28 * 28, .max_pixels = 768 * 28 * 28};
  return defaults.parse(config, tower);
}

Qwen2ImageProcessor Qwen2ImageProcessor::for_qwen3_videos(const std::optional<JsonView>& config,
                                                          const Geometry& tower) {
  Qwen2ImageProcessor defaults;
  defaults.geometry_.patch_size_px = 16;
  defaults.limits_ = {.min_pixels = 128 * 32 * 32, .max_pixels = 768 * 32 * 32};
  defaults.limits_whole_video_ = true;
  defaults.max_video_tokens_ = 768;
  defaults.video_sampling_.to_the_end = true;
  Qwen2ImageProcessor out = defaults.parse(config, tower);
  if (!config || !config->has("image_mean")) out.normalize_.mean = {0.5, 0.5, 0.5};
  if (!config || !config->has("image_std")) out.normalize_.std = {0.5, 0.5, 0.5};
  return out;
}

Qwen2ImageProcessor Qwen2ImageProcessor::parse(const std::optional<JsonView>& config,
                                               const Geometry& tower) const {
  const JsonView c = config.value_or(JsonView(empty_json_object(), "preprocessor_config.json"));
  Qwen2ImageProcessor out = *this;
  const auto size_of = [&](std::string_view key, int fallback, int most) {
    return static_cast<int>(c.get_int(key, fallback, 1, most));
  };
  out.geometry_ = {.patch_size_px = size_of("patch_size", geometry_.patch_size_px, 1024),
                   .temporal_patch_size = size_of("temporal_patch_size", geometry_.temporal_patch_size, 64),
                   .merge_size = size_of("merge_size", geometry_.merge_size, 64)};
  if (!config) out.geometry_ = tower;
  if (out.geometry_ != tower)
    fail(ErrorCode::kInvalidFile,
         "{}: patch_size {}, temporal_patch_size {} and merge_size {} are not those of the tower, {}, {} and "
         "{}",
         c.path(), out.geometry_.patch_size_px, out.geometry_.temporal_patch_size, out.geometry_.merge_size,
         tower.patch_size_px, tower.temporal_patch_size, tower.merge_size);
  // The same two numbers have been written in three ways; the oldest, at the top, wins where files hold
  // several.
  PixelLimits& limits = out.limits_;
  if (const auto size = c.find("size")) {
    read_limit(*size, "min_pixels", limits.min_pixels);
    read_limit(*size, "max_pixels", limits.max_pixels);
    read_limit(*size, "shortest_edge", limits.min_pixels);
    read_limit(*size, "longest_edge", limits.max_pixels);
  }
  if (!limits_whole_video_) {  // Qwen3-VL's video processor reads `size` alone
    read_limit(c, "min_pixels", limits.min_pixels);
    read_limit(c, "max_pixels", limits.max_pixels);
  }
  out.do_resize_ = c.get_bool("do_resize", true);
  out.resample_ = filter_from_pillow(static_cast<int>(c.get_int("resample", 3, 0, 5)));
  out.normalize_ = parse_normalize(c);
  VideoSampling& sampling = out.video_sampling_;
  sampling.frames_per_s = read_positive(c, "fps", sampling.frames_per_s, 1000.0);
  sampling.min_frames = static_cast<int>(c.get_int("min_frames", sampling.min_frames, 1, 1 << 20));
  sampling.max_frames = static_cast<int>(c.get_int("max_frames", sampling.max_frames, 1, 1 << 20));
  sampling.frame_multiple = out.geometry_.temporal_patch_size;
  out.cap_pixels_per_frame_ = c.get_bool("cap_pixels_per_frame", false);
  out.max_video_tokens_ = c.get_int("max_video_tokens", max_video_tokens_, 1, 1 << 24);
  return out;
}

PixelLimits Qwen2ImageProcessor::limits_for(const MediaMeta& meta, const MediaOptions& options) const {
  const auto checked = [](std::int64_t value, std::string_view name) {
    if (value < 0 || value > kMaxPixels)
      fail(ErrorCode::kInvalidArgument, "{}: expected a number in [1, {}], got {}", name, kMaxPixels, value);
    return value;
  };
  if (options.min_pixels > 0 && options.max_pixels > 0 && options.min_pixels > options.max_pixels)
    fail(ErrorCode::kInvalidArgument, "min_pixels {} is larger than max_pixels {}", options.min_pixels,
         options.max_pixels);
  PixelLimits out = limits_;
  if (checked(options.min_pixels, "min_pixels") > 0) out.min_pixels = options.min_pixels;
  if (checked(options.max_pixels, "max_pixels") > 0) out.max_pixels = options.max_pixels;
  if (!meta.is_video || !cap_pixels_per_frame_) return out;
  const std::int64_t factor = geometry_.patch_size_px * geometry_.merge_size;
  const auto least = static_cast<std::int64_t>(static_cast<double>(out.min_pixels) * 1.05);
  if (limits_whole_video_) {
    const std::int64_t of_frame =
        std::max(std::min(max_video_tokens_ * factor * factor, out.max_pixels / meta.n_frames), least);
    out.max_pixels = std::min(of_frame, kMaxPixels / meta.n_frames) * meta.n_frames;
  } else {
    const auto total =
        static_cast<std::int64_t>(static_cast<double>(max_video_tokens_ * factor * factor) * 0.9);
    out.max_pixels =
        std::max(std::min(out.max_pixels, total * geometry_.temporal_patch_size / meta.n_frames), least);
  }
  return out;
}

MediaPlan Qwen2ImageProcessor::plan(const MediaMeta& meta, const MediaOptions& options,
                                    std::int64_t max_tokens) const {
  TRIPTYCH_CHECK(
      meta.width_px > 0 && meta.height_px > 0 && meta.n_frames > 0 && (meta.is_video || meta.n_frames == 1),
      "[qwen2 processor] {}x{}, {} frames", meta.width_px, meta.height_px, meta.n_frames);
  const Geometry& g = geometry_;
  const int factor = g.patch_size_px * g.merge_size;
  SizePx size{meta.width_px, meta.height_px};
  if (do_resize_) {
    const PixelLimits limits = limits_for(meta, options);
    size = meta.is_video && limits_whole_video_
               ? smart_resize_video(size, meta.n_frames, factor, g.temporal_patch_size, limits)
               : smart_resize(size, factor, limits);
  } else if (size.width_px % factor != 0 || size.height_px % factor != 0) {
    fail(ErrorCode::kInvalidArgument,
         "a picture of {}x{} pixels: this model does not resize, and both sides must be multiples of {}",
         size.width_px, size.height_px, factor);
  }
  MediaPlan out;
  out.meta = meta;
  out.resized_width_px = size.width_px;
  out.resized_height_px = size.height_px;
  out.grid_t = (meta.n_frames - 1) / g.temporal_patch_size + 1;
  out.grid_h = size.height_px / g.patch_size_px;
  out.grid_w = size.width_px / g.patch_size_px;
  out.n_patches = std::int64_t{out.grid_t} * out.grid_h * out.grid_w;
  out.n_tokens = std::int64_t{out.grid_t} * (out.grid_h / g.merge_size) * (out.grid_w / g.merge_size);
  out.n_prompt_tokens = out.n_tokens;
  if (out.n_tokens > max_tokens)
    fail(ErrorCode::kContextLength,
         "{} of {}x{} pixels takes {} tokens and the context holds {}; a smaller max_pixels makes it fewer",
         meta.is_video ? fmt::format("a video of {} frames", meta.n_frames) : "a picture", meta.width_px,
         meta.height_px, out.n_tokens, max_tokens);
  return out;
}

Tensor Qwen2ImageProcessor::operator()(std::span<const Image> frames, const MediaPlan& plan,
                                       ThreadPool* pool) const {
  TRIPTYCH_CHECK(static_cast<int>(frames.size()) == plan.meta.n_frames,
                 "[qwen2 processor] {} frames, planned {}", frames.size(), plan.meta.n_frames);
  for (std::size_t i = 0; i < frames.size(); ++i)
    if (frames[i].width_px != plan.meta.width_px || frames[i].height_px != plan.meta.height_px)
      fail(ErrorCode::kInvalidArgument, "frame {} of the video has {}x{} pixels, the first has {}x{}", i,
           frames[i].width_px, frames[i].height_px, plan.meta.width_px, plan.meta.height_px);
  const Geometry& g = geometry_;
  const std::int64_t slice_values = std::int64_t{g.patch_size_px} * g.patch_size_px;
  const std::int64_t patch_values = 3 * g.temporal_patch_size * slice_values;
  const std::int64_t step_patches = std::int64_t{plan.grid_h} * plan.grid_w;
  Tensor out(DType::kF32, {plan.grid_t * step_patches, patch_values});
  const Levels levels = levels_of(normalize_);
  Image resized;
  const Image* image = nullptr;
  for (int slot = 0; slot < plan.grid_t * g.temporal_patch_size; ++slot) {
    if (slot < plan.meta.n_frames) {
      image = &frames[static_cast<std::size_t>(slot)];
      if (image->width_px != plan.resized_width_px || image->height_px != plan.resized_height_px) {
        resized = resize(*image, plan.resized_width_px, plan.resized_height_px, resample_, pool);
        image = &resized;
      }
    }
    float* to = out.f32() + (slot / g.temporal_patch_size) * step_patches * patch_values +
                (slot % g.temporal_patch_size) * slice_values;
    const SliceArgs args{*image, levels, g.patch_size_px, g.merge_size, g.temporal_patch_size};
    const auto rows = [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t row = begin; row < end; ++row) write_slice(args, to, static_cast<int>(row));
    };
    const auto n_block_rows = static_cast<std::size_t>(plan.grid_h / g.merge_size);
    if (pool != nullptr) {
      pool->parallel_for(n_block_rows, 1, rows);
    } else {
      rows(0, n_block_rows, 0);
    }
  }
  return out;
}

std::span<const VisionFrame> vision_frames(ExecContext& cx, std::span<const MediaItem> items) {
  std::size_t n = 0;
  for (const MediaItem& item : items) n += static_cast<std::size_t>(item.plan.grid_t);
  const auto out = cx.arena().make_span<VisionFrame>(n);
  std::size_t next = 0;
  for (const MediaItem& item : items) {
    const MediaPlan& p = item.plan;
    const std::int64_t frame_patches = std::int64_t{p.grid_h} * p.grid_w;
    TRIPTYCH_CHECK(item.pixels.view().rank() == 2 && item.pixels.view().dim(0) == p.grid_t * frame_patches,
                   "[qwen2] pixels {} for a grid of {}x{}x{}", to_string(item.pixels.shape()), p.grid_t,
                   p.grid_h, p.grid_w);
    for (int t = 0; t < p.grid_t; ++t)
      out[next++] = {.patches = item.pixels.view().rows(t * frame_patches, (t + 1) * frame_patches),
                     .grid_h = p.grid_h,
                     .grid_w = p.grid_w};
  }
  return out;
}

}  // namespace triptych
