// Pictures in tiles of the tower's size ("any resolution"), as LLaVA-NeXT and LLaVA-OneVision see them. A
// picture is seen whole (resized to S x S, aspect ratio ignored) and as nh x nw tiles of S x S cut from a
// canvas it is fitted and centred in. The features of the tiles are put together as one map, the rows and
// columns that only saw padding are cut away, each row of the map ends with a learned newline, and the whole
// view's features come first:
//   tokens = P + rows * (cols + 1)
// With a cap (anyres_max_N) a map of clearly more than N P places is first made smaller, bilinearly.
// Reference: transformers 5.24, image_processing_pil_llava_next.py, modeling_llava_onevision.py
// (pack_image_features), processing_llava_onevision.py.
// Shapes: S tower side, g = S / patch, P = g * g, V views of a picture (1 + nh nw), D language width.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/exec_context.h"
#include "base/json.h"
#include "media/image_resize.h"
#include "media/normalize.h"
#include "models/model.h"
#include "nn/llava_vision.h"

namespace triptych {

/// Throws Error(kInvalidFile) naming the key where the `size` of an image or video processor is stated and is
/// not the tower's, side_px x side_px.
void check_picture_size(const JsonView& processor, int side_px);

struct AnyRes {
  int side_px = 0;               // S
  int grid = 0;                  // g
  std::int64_t tower_rows = 0;   // of a view: P, and a class token where the tower has one
  std::vector<SizePx> canvases;  // sizes a picture may be fitted in, multiples of S
  std::int64_t max_views = 0;    // N of anyres_max_N: places of the map in views' worth; 0: no cap
  Filter resample = Filter::kBicubic;
  NormalizeOptions normalize;

  enum class PairOrder { kHeightWidth, kWidthHeight };
  /// Geometry of the tower, canvases of a list of pairs (image_grid_pinpoints), resampling and normalisation
  /// of an image processor (null: class defaults). Throws Error(kInvalidFile) naming the field, kUnsupported
  /// where `vision`, read from `config`, keeps other than one feature per patch.
  static AnyRes parse(const JsonView& config, const LlavaVisionConfig& vision, const JsonView& pinpoints,
                      PairOrder order, const std::optional<JsonView>& processor);
  /// Sets the cap of "anyres_max_N"; "anyres" has none where `cap_needed` is false. Throws
  /// Error(kUnsupported) naming the field for anything else.
  void set_cap(const JsonView& aspect_ratio, bool cap_needed);

  /// Size of the picture in its canvas, tiles (grid_h x grid_w) and tokens.
  MediaPlan plan(const MediaMeta& meta) const;
  /// The whole view and the tiles [V, 3, S, S].
  Tensor preprocess(const Image& picture, const MediaPlan& plan, ThreadPool* pool) const;
  /// Tower and projector of one planned picture -> out [n tokens, D]; `newline` [D].
  void encode(ExecContext& cx, const LlavaVision& vision, const TensorView& newline, const MediaItem& item,
              TensorView out) const;

  /// The part of the tiles' map (nh g x nw g) that saw the picture, and its size as tokens.
  struct Map {
    std::int64_t first_row = 0, n_rows = 0, first_col = 0, n_cols = 0;  // before it is made smaller
    std::int64_t rows = 0, cols = 0;
    std::int64_t n_tokens() const noexcept { return rows * (cols + 1); }
    bool is_scaled() const noexcept { return rows != n_rows || cols != n_cols; }
  };
  Map map_of(const MediaPlan& plan) const;
};

/// Features of views [3, S, S] each, one after another -> out [n P, D], some views at a time, so that the
/// memory of a step does not grow with their number.
void encode_views(ExecContext& cx, const LlavaVision& vision, std::span<const TensorView> views,
                  TensorView out);

}  // namespace triptych
