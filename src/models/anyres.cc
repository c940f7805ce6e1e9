#include "models/anyres.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/clip_image_processor.h"
#include "nn/interpolate.h"

namespace triptych {
namespace {

constexpr std::int64_t kRowsAtOnce = 16384;  // of the tower

// Pairs of sides, each a multiple of the tower's.
std::vector<SizePx> parse_canvases(const JsonView& value, int side, AnyRes::PairOrder order) {
  const bool height_first = order == AnyRes::PairOrder::kHeightWidth;
  std::vector<SizePx> out;
  for (const JsonView& item : value.items()) {
    const auto pair = item.items();
    if (pair.size() != 2) item.fail_expected(height_first ? "[height, width]" : "[width, height]");
    const SizePx size{static_cast<int>(pair[height_first ? 1 : 0].as_int(1, 1 << 16)),
                      static_cast<int>(pair[height_first ? 0 : 1].as_int(1, 1 << 16))};
    if (size.width_px % side != 0 || size.height_px % side != 0 ||
        (size.width_px / side) * static_cast<std::int64_t>(size.height_px / side) > 256)
      item.fail_expected(fmt::format("multiples of the tower's image_size {} with at most 256 tiles", side));
    out.push_back(size);
  }
  if (out.empty() || out.size() > 1024) value.fail_expected("1 to 1024 sizes");
  return out;
}

// The canvas that keeps most of the picture's pixels, and of those the one that wastes least; the first on a
// tie.
SizePx select_best_resolution(SizePx picture, std::span<const SizePx> canvases) {
  SizePx best;
  std::int64_t best_effective = -1;
  std::int64_t best_wasted = 0;
  for (const SizePx& c : canvases) {
    const double scale = std::min(static_cast<double>(c.width_px) / picture.width_px,
                                  static_cast<double>(c.height_px) / picture.height_px);
    const auto w = static_cast<std::int64_t>(picture.width_px * scale);
    const auto h = static_cast<std::int64_t>(picture.height_px * scale);
    const std::int64_t effective =
        std::min(w * h, static_cast<std::int64_t>(picture.width_px) * picture.height_px);
    const std::int64_t wasted = static_cast<std::int64_t>(c.width_px) * c.height_px - effective;
    if (effective > best_effective || (effective == best_effective && wasted < best_wasted)) {
      best = c;
      best_effective = effective;
      best_wasted = wasted;
    }
  }
  return best;
}

// Size of the picture inside its canvas. In double and in this order: 300 * (336 / 300) rounds up to 337
// before the limit.
SizePx fitted_size(SizePx picture, SizePx canvas) {
  const double scale_w = static_cast<double>(canvas.width_px) / picture.width_px;
  const double scale_h = static_cast<double>(canvas.height_px) / picture.height_px;
  if (scale_w < scale_h)
    return {canvas.width_px,
            std::min(static_cast<int>(std::ceil(picture.height_px * scale_w)), canvas.height_px)};
  return {std::min(static_cast<int>(std::ceil(picture.width_px * scale_h)), canvas.width_px),
          canvas.height_px};
}

// Rows and columns of the map that are kept, by the original aspect ratio.
AnyRes::Map unpad(SizePx picture, std::int64_t height, std::int64_t width) {
  const std::int64_t w = picture.width_px;
  const std::int64_t h = picture.height_px;
  if (w * height > width * h) {  // wider than the canvas: rows were padded
    const std::int64_t padding = (height - h * width / w) / 2;
    return {.first_row = padding, .n_rows = height - 2 * padding, .first_col = 0, .n_cols = width};
  }
  const std::int64_t padding = (width - w * height / h) / 2;
  return {.first_row = 0, .n_rows = height, .first_col = padding, .n_cols = width - 2 * padding};
}

// Python's int(a // b), which is not floor(a / b): 135 // (135 / 81) is 80.
std::int64_t floor_divide(std::int64_t a, double b) {
  const auto x = static_cast<double>(a);
  return std::llround((x - std::fmod(x, b)) / b);
}

}  // namespace

void check_picture_size(const JsonView& processor, int side_px) {
  const auto size = processor.find("size");
  if (!size || !size->is_object()) return;
  for (const std::string_view key : {"shortest_edge", "height", "width"})
    if (const auto edge = size->find(key); edge && edge->as_int() != side_px)
      edge->fail_expected(fmt::format("the tower's image_size {}", side_px));
}

AnyRes AnyRes::parse(const JsonView& config, const LlavaVisionConfig& vision, const JsonView& pinpoints,
                     PairOrder order, const std::optional<JsonView>& processor) {
  if (vision.tokens_per_picture() != vision.tower.n_patches())
    fail(ErrorCode::kUnsupported,
         "{}.vision_feature_select_strategy: tiles need one feature per patch, without the class token",
         config.path());
  AnyRes out;
  out.side_px = vision.tower.image_size_px;
  out.grid = out.side_px / vision.tower.patch_size_px;
  out.tower_rows = vision.tower.n_rows();
  out.canvases = parse_canvases(pinpoints, out.side_px, order);
  const JsonView p = processor.value_or(JsonView(empty_json_object(), "preprocessor_config.json"));
  out.resample = filter_from_pillow(static_cast<int>(p.get_int("resample", 3, 0, 5)));
  out.normalize = parse_normalize(p);
  check_picture_size(p, out.side_px);
  return out;
}

void AnyRes::set_cap(const JsonView& aspect_ratio, bool cap_needed) {
  constexpr std::string_view kPrefix = "anyres_max_";
  const std::string text = aspect_ratio.as_string();
  max_views = 0;
  if (!cap_needed && text == "anyres") return;
  if (text.starts_with(kPrefix)) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + kPrefix.size(), end, max_views);
    if (error == std::errc() && stop == end && max_views >= 1 && max_views <= 1024) return;
  }
  fail(ErrorCode::kUnsupported,
       "{}: \"{}\" is not supported; supported: {}anyres_max_N with N from 1 to 1024", aspect_ratio.path(),
       text.substr(0, 100), cap_needed ? "" : "anyres, ");
}

AnyRes::Map AnyRes::map_of(const MediaPlan& plan) const {
  Map out = unpad({plan.meta.width_px, plan.meta.height_px}, std::int64_t{plan.grid_h} * grid,
                  std::int64_t{plan.grid_w} * grid);
  out.rows = out.n_rows;
  out.cols = out.n_cols;
  if (max_views > 0) {
    const double ratio = std::sqrt(static_cast<double>(out.n_rows * out.n_cols) /
                                   static_cast<double>(max_views * grid * grid));
    if (ratio > 1.1) {
      out.rows = floor_divide(out.n_rows, ratio);
      out.cols = floor_divide(out.n_cols, ratio);
    }
  }
  return out;
}

// grid_h x grid_w counts tiles; resized is the picture inside its canvas.
MediaPlan AnyRes::plan(const MediaMeta& meta) const {
  const SizePx picture{meta.width_px, meta.height_px};
  const SizePx canvas = select_best_resolution(picture, canvases);
  const SizePx fitted = fitted_size(picture, canvas);
  MediaPlan out;
  out.meta = meta;
  out.resized_width_px = fitted.width_px;
  out.resized_height_px = fitted.height_px;
  out.grid_h = canvas.height_px / side_px;
  out.grid_w = canvas.width_px / side_px;
  out.n_patches = (1 + std::int64_t{out.grid_h} * out.grid_w) * tower_rows;
  out.n_tokens = std::int64_t{grid} * grid + map_of(out).n_tokens();
  out.n_prompt_tokens = out.n_tokens;
  return out;
}

Tensor AnyRes::preprocess(const Image& picture, const MediaPlan& plan, ThreadPool* pool) const {
  const int side = side_px;
  const std::int64_t n_views = 1 + static_cast<std::int64_t>(plan.grid_h) * plan.grid_w;
  Tensor out(DType::kF32, {n_views, 3, side, side});
  const auto write = [&](const Image& view, std::int64_t i) {
    normalize_chw(view, normalize, {out.view().row(i).f32(), static_cast<std::size_t>(3 * side * side)});
  };
  write(resize(picture, side, side, resample, pool), 0);
  const int left = (plan.grid_w * side - plan.resized_width_px) / 2;
  const int top = (plan.grid_h * side - plan.resized_height_px) / 2;
  const Image canvas = pad(resize(picture, plan.resized_width_px, plan.resized_height_px, resample, pool),
                           {.left = left,
                            .top = top,
                            .right = plan.grid_w * side - plan.resized_width_px - left,
                            .bottom = plan.grid_h * side - plan.resized_height_px - top},
                           kBlack);
  for (int y = 0; y < plan.grid_h; ++y)
    for (int x = 0; x < plan.grid_w; ++x)
      write(crop(canvas, x * side, y * side, {side, side}),
            1 + static_cast<std::int64_t>(y) * plan.grid_w + x);
  return out;
}

void AnyRes::encode(ExecContext& cx, const LlavaVision& vision, const TensorView& newline,
                    const MediaItem& item, TensorView out) const {
  const ArenaScope scratch(cx.arena());
  const Map map = map_of(item.plan);
  const std::int64_t g = grid;
  const std::int64_t p = g * g;
  const std::int64_t n_views = item.pixels.shape().dim(0);
  TRIPTYCH_CHECK(item.plan.n_tokens == p + map.n_tokens() && out.dim(0) == item.plan.n_tokens &&
                     n_views == 1 + std::int64_t{item.plan.grid_h} * item.plan.grid_w,
                 "[anyres] {} rows of {} views planned for {}x{} kept", item.plan.n_tokens, n_views, map.rows,
                 map.cols);
  const auto views = cx.arena().make_span<TensorView>(static_cast<std::size_t>(n_views));
  for (std::int64_t i = 0; i < n_views; ++i) views[static_cast<std::size_t>(i)] = item.pixels.view().row(i);
  TensorView table = cx.empty({n_views * p + 1, out.dim(1)});  // features of all views, then the newline
  encode_views(cx, vision, views, table.rows(0, n_views * p));
  cx.copy(newline, table.row(n_views * p));

  // Which row of the table each token is, or which four it lies between.
  const auto place = [&](std::int64_t row, std::int64_t col) {
    const std::int64_t y = map.first_row + row;
    const std::int64_t x = map.first_col + col;
    const std::int64_t tile = 1 + (y / g) * item.plan.grid_w + x / g;
    return tile * p + (y % g) * g + x % g;
  };
  RowMixture tokens(cx.arena(), item.plan.n_tokens);
  for (std::int64_t i = 0; i < p; ++i) tokens.add(i);
  for (std::int64_t row = 0; row < map.rows; ++row) {
    for (std::int64_t col = 0; col < map.cols; ++col) {
      if (map.is_scaled()) {
        tokens.add(bilinear_tap(row, map.n_rows, map.rows), bilinear_tap(col, map.n_cols, map.cols), place);
      } else {
        tokens.add(place(row, col));
      }
    }
    tokens.add(n_views * p);
  }
  tokens.write(cx, table, out);
}

void encode_views(ExecContext& cx, const LlavaVision& vision, std::span<const TensorView> views,
                  TensorView out) {
  const std::int64_t p = vision.config().tokens_per_picture();
  const auto at_once =
      static_cast<std::size_t>(std::max<std::int64_t>(1, kRowsAtOnce / vision.config().tower.n_rows()));
  std::int64_t row = 0;
  while (!views.empty()) {
    const auto group = views.first(std::min(at_once, views.size()));
    const std::int64_t end = row + static_cast<std::int64_t>(group.size()) * p;
    const ArenaScope scratch(cx.arena());
    cx.copy(vision.encode(cx, group), out.rows(row, end));
    views = views.subspan(group.size());
    row = end;
  }
}

}  // namespace triptych
