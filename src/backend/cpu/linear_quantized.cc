#include "backend/cpu/linear_quantized.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "backend/cpu/kernels/tiles/tile_scope.h"
#include "base/error.h"

namespace triptych::cpu {
namespace {

// A few pieces a thread even out unequal speeds.
std::int64_t wanted_pieces(const Runtime& runtime) {
  return runtime.n_threads() == 1 ? 1 : std::int64_t{3} * runtime.n_threads();
}

// The part that row `index` of the stack lies in; `index` becomes that of the part.
const LinearPart& part_of_row(const LinearSpec& spec, std::int64_t& index) {
  for (const LinearPart& part : spec.parts) {
    if (index < part.n_out()) return part;
    index -= part.n_out();
  }
  TRIPTYCH_CHECK(false, "{}: {} rows beyond the stack", spec.name, index);
  return spec.parts.front();
}

bool is_int8_channels(const QuantFormat& format) {
  return format.code == QuantCode::kInt8 && format.group_size == QuantFormat::kWholeRow;
}

}  // namespace

void load_row(const Runtime& runtime, const LinearSpec& spec, std::int64_t index, float* out) {
  const LinearPart& part = part_of_row(spec, index);
  if (const QuantizedSource* source = part.quantized()) return source->load_row(index, out);
  const WeightEntry& entry = *part.dense();
  const TensorView row = entry.view.row(index);
  runtime.rows.widen(element_type_of(entry.view.dtype(), entry.name), row.numel(), row.cdata(), out);
}

QuantizedRow stored_codes(const LinearSpec& spec, const QuantFormat& format, std::int64_t index) {
  const QuantizedSource* source = part_of_row(spec, index).quantized();
  if (source == nullptr || !source->is_plain()) return {};
  const QuantFormat& own = source->matrix->format;
  const bool both_channels = is_int8_channels(own) && is_int8_channels(format);
  if (own != format && !both_channels) return {};
  return {source->matrix.get(), index};
}

QuantizedMatrix quantize_by_codec(const Runtime& runtime, const LinearSpec& spec, const QuantFormat& format,
                                  std::int64_t first, std::int64_t n_rows) {
  Tensor values(DType::kF32, {n_rows, spec.parts.front().n_in()});
  for (std::int64_t r = 0; r < n_rows; ++r) load_row(runtime, spec, first + r, values.view().row(r).f32());
  try {
    return quantize(values, format);
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidFile, "{}, rows from {} on: {}", spec.name, first, error.what());
  }
}

void release_loaded_rows(const LinearSpec& spec, std::int64_t begin, std::int64_t end) noexcept {
  for (const LinearPart& part : spec.parts) {
    const std::int64_t n = part.n_out();
    if (const WeightEntry* entry = part.dense())
      release_rows(*entry, std::clamp<std::int64_t>(begin, 0, n), std::clamp<std::int64_t>(end, 0, n));
    begin -= n;
    end -= n;
  }
}

void make_panels(Runtime& runtime, const LinearSpec& spec, std::int64_t n_out, std::int64_t n_in,
                 FunctionRef<void(std::int64_t panel)> make) {
  constexpr std::int64_t kWidth = kernels::kS8PanelWidth;
  std::exception_ptr problem;
  std::mutex mutex;
  runtime.parallel(ceil_div(n_out, kWidth), kWidth * n_in * 8,
                   [&](std::int64_t begin, std::int64_t end, int) {
                     try {
                       for (std::int64_t i = begin; i < end; ++i) {
                         make(i);
                         release_loaded_rows(spec, i * kWidth, std::min(n_out, (i + 1) * kWidth));
                       }
                     } catch (...) {
                       const std::scoped_lock lock(mutex);
                       problem = std::current_exception();
                     }
                   });
  if (problem) std::rethrow_exception(problem);
}

std::int64_t check_parts(const LinearSpec& spec, std::int64_t& n_in) {
  if (spec.parts.empty()) fail(ErrorCode::kInvalidFile, "{}: a linear without a matrix", spec.name);
  std::int64_t n_out = 0;
  for (const LinearPart& part : spec.parts) {
    if (const WeightEntry* entry = part.dense()) {
      const TensorView& view = entry->view;
      if (view.rank() != 2 || view.data() == nullptr || view.dim(0) < 1 || view.dim(1) < 1)
        fail(ErrorCode::kInvalidFile, "{}: expected a matrix [N, K], got {}", entry->name,
             to_string(view.shape()));
      element_type_of(view.dtype(), entry->name);
    } else if (const QuantizedSource* source = part.quantized()) {
      source->check();
    }
    if (n_out > 0 && part.n_in() != n_in)
      fail(ErrorCode::kInvalidFile, "{}: expected [N, {}] beside the other matrices, got {}", part.name(),
           n_in, to_string(Shape{part.n_out(), part.n_in()}));
    n_in = part.n_in();
    n_out += part.n_out();
  }
  if (n_in > kernels::kS8MaxK)
    fail(ErrorCode::kUnsupported, "{}: {} inputs; 8-bit products take up to {}", spec.name, n_in,
         kernels::kS8MaxK);
  return n_out;
}

void multiply_s8_panels(const Runtime& runtime, const kernels::GemmS8Kernels& gemm_s8, const LinearArgs& args,
                        const QuantizedRows& rows, const S8Panels& panels, std::int64_t row_begin,
                        std::int64_t row_end, float* products) {
  const std::int64_t n_rows_all = row_end - row_begin;
  const std::int64_t n_tiles = ceil_div(n_rows_all, gemm_s8.max_rows);
  // Of nearly equal heights; blocks of rows in tile order stay whole.
  const auto tile_begin = [&](std::int64_t t) {
    return row_begin +
           (gemm_s8.tiles != nullptr ? std::min(t * gemm_s8.max_rows, n_rows_all) : t * n_rows_all / n_tiles);
  };
  const std::int64_t half = panels.n * kernels::kS8PanelWidth;
  const std::int64_t stride = panels.up != nullptr ? 2 * half : half;
  const auto multiply = [&](std::int64_t begin, int n_rows, const std::uint8_t* data, const float* scales,
                            float* to) {
    for (std::int64_t p = 0; p < panels.n; ++p)
      gemm_s8.tile({n_rows, kernels::s8_quads(panels.k), rows.q + begin * rows.stride, rows.stride,
                    data + p * panels.panel_bytes, rows.scales + begin, rows.sums + begin,
                    scales + p * kernels::kS8PanelWidth, to + p * kernels::kS8PanelWidth, stride,
                    panels.in_tiles});
  };
  for (std::int64_t t = 0; t < n_tiles; ++t) {
    const std::int64_t begin = tile_begin(t);
    const int n_rows = static_cast<int>(tile_begin(t + 1) - begin);
    multiply(begin, n_rows, panels.data, panels.column_scales, products);
    if (panels.up != nullptr) multiply(begin, n_rows, panels.up, panels.up_column_scales, products + half);
    for (int r = 0; r < n_rows; ++r) {
      float* row = products + r * stride;
      add_outliers(rows, begin + r, panels.first_column, panels.n_columns, row);
      if (panels.up != nullptr)
        add_outliers(rows, begin + r, panels.n_half + panels.first_column, panels.n_columns, row + half);
      if (panels.up != nullptr) {
        finish_gated_row(runtime, args, panels.bias, panels.n_half, begin + r, panels.first_column,
                         panels.n_columns, row, row + half);
      } else {
        finish_row(runtime, args, panels.bias, begin + r, panels.first_column, panels.n_columns, row);
      }
    }
  }
}

namespace {

std::int64_t choose_panels_per_group(const Runtime& runtime, std::int64_t n_panels, std::int64_t panel_bytes,
                                     std::int64_t group_bytes) {
  constexpr std::int64_t kMaxGroup = 4;  // 256 columns are enough for an epilogue to be cheap
  std::int64_t group = std::clamp<std::int64_t>(group_bytes / panel_bytes, 1, kMaxGroup);
  while (group > 1 && ceil_div(n_panels, group) < wanted_pieces(runtime)) --group;
  return group;
}

}  // namespace

PanelTiling plan_panel_tiling(const Runtime& runtime, const kernels::GemmS8Kernels& gemm_s8,
                              std::int64_t n_panels, std::int64_t panel_bytes, std::int64_t n_rows,
                              bool makes_panels) {
  PanelTiling out;
  out.gemm_s8 = &gemm_s8;
  const bool tiles = out.gemm_s8->tiles != nullptr;
  const std::int64_t max_rows = out.gemm_s8->max_rows;
  out.panels_per_group =
      choose_panels_per_group(runtime, n_panels, panel_bytes,
                              tiles ? runtime.tuning.tile_group_bytes : runtime.tuning.panel_group_bytes);
  // As many groups for each thread, of nearly equal sizes.
  out.n_groups = std::min(n_panels, ceil_div(ceil_div(n_panels, out.panels_per_group), runtime.n_threads()) *
                                        runtime.n_threads());
  const std::int64_t most_splits = std::max<std::int64_t>(1, n_rows / ((tiles ? 2 : 4) * max_rows));
  const std::int64_t wanted = tiles && makes_panels ? runtime.n_threads() : wanted_pieces(runtime);
  out.n_row_splits = std::clamp<std::int64_t>(ceil_div(wanted, out.n_groups), 1, most_splits);
  out.loop = runtime.plan_loop(out.n_groups * out.n_row_splits,
                               out.panels_per_group * panel_bytes * ceil_div(n_rows, out.n_row_splits));
  return out;
}

void for_panel_items(Runtime& runtime, std::int64_t n_panels, std::int64_t n_rows, const PanelTiling& tiling,
                     FunctionRef<void(const PanelItem& item, int thread)> body) {
  const std::int64_t n_groups = tiling.n_groups;
  const std::int64_t n_row_splits = tiling.n_row_splits;
  const std::int64_t unit = tiling.gemm_s8->tiles != nullptr ? tiling.gemm_s8->max_rows : 1;
  const auto row_begin = [&](std::int64_t s) { return s * n_rows / n_row_splits / unit * unit; };
  runtime.parallel(tiling.loop, [&](std::int64_t begin, std::int64_t end, int thread) {
    const kernels::TileScope scope(tiling.gemm_s8->tiles);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t g = i / n_row_splits;
      const std::int64_t s = i % n_row_splits;
      body({g * n_panels / n_groups, (g + 1) * n_panels / n_groups, row_begin(s),
            s + 1 < n_row_splits ? row_begin(s + 1) : n_rows},
           thread);
    }
  });
}

}  // namespace triptych::cpu
