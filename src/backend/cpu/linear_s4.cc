#include "backend/cpu/linear_s4.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "backend/cpu/linear_quantized.h"
#include "base/error.h"
#include "base/half.h"
#include "tensor/quant_codec.h"

namespace triptych::cpu {
namespace {

constexpr std::int64_t kWidth = kernels::kS4PanelWidth;

}  // namespace

CpuLinearS4::CpuLinearS4(Runtime& runtime, const LinearSpec& spec) {
  const QuantFormat format = *spec.target_format();
  if (format.code != QuantCode::kInt4 || format.scale_dtype == DType::kF32 || format.group_size % 8 != 0)
    fail(ErrorCode::kUnsupported,
         "{}: the CPU backend computes with int4 in groups of 8, 16, ... with fp16 or bf16 scales, not {}",
         spec.name, format.to_string());
  QuantizedShape shape = quantized_shape(runtime.weight_memory, spec);
  n_out_ = shape.n_out;
  bias_ = std::move(shape.bias);
  layout_ = {shape.n_in, format.group_of_row(shape.n_in), format.has_zeros()};
  const std::int64_t n_panels = ceil_div(n_out_, kWidth);
  const Shape panels{n_panels, layout_.panel_bytes()};
  const Shape columns{n_panels * kWidth};
  const bool has_factors = format.two_level || format.scale_dtype == DType::kBF16;
  if (spec.packed() != nullptr) {
    panels_ = WeightArray::borrow(spec, "panels", DType::kU8, panels);
    column_scales_ = WeightArray::borrow_finite(spec, "column_scales", columns);
    if (has_factors) factors_ = WeightArray::borrow_finite(spec, "column_factors", columns);
  } else {
    panels_ = WeightArray::make(runtime.weight_memory, "panels", DType::kU8, panels);
    column_scales_ = WeightArray::make(runtime.weight_memory, "column_scales", DType::kF32, columns);
    if (has_factors)
      factors_ = WeightArray::make(runtime.weight_memory, "column_factors", DType::kF32, columns);
    make_panels(runtime, spec, n_out_, layout_.k, [&](std::int64_t i) { quantize_panel(runtime, spec, i); });
  }
  for (std::int64_t i = 0; i < factors_.numel(); ++i)
    tile_scales_.push_back(column_scales_.f32()[i] * factors_.f32()[i]);
}

std::size_t CpuLinearS4::total_bytes() const noexcept {
  return panels_.size_bytes() + column_scales_.size_bytes() + factors_.size_bytes() + bias_.size_bytes();
}

std::size_t CpuLinearS4::owned_bytes() const noexcept {
  return panels_.owned_bytes() + column_scales_.owned_bytes() + factors_.owned_bytes() + bias_.owned_bytes() +
         tile_scales_.size() * sizeof(float);
}

std::vector<PackedArray> CpuLinearS4::packed() const {
  std::vector<PackedArray> out;
  for (const WeightArray* array : {&panels_, &column_scales_, &factors_, &bias_}) array->append_to(out);
  return out;
}

// The rows of a panel as they are packed: codes as stored, zero points, scales as float16 bits.
struct CpuLinearS4::PanelRows {
  PanelRows(const kernels::S4Layout& layout)
      : stride(layout.padded_k()),
        n_groups(layout.n_groups()),
        codes(static_cast<std::size_t>(kWidth * stride)),
        scales(static_cast<std::size_t>(kWidth * n_groups)),
        zeros(static_cast<std::size_t>(kWidth * n_groups), 8) {}
  std::int64_t stride, n_groups;
  std::vector<std::uint8_t> codes;    // [64][stride]
  std::vector<std::uint16_t> scales;  // [64][n_groups]
  std::vector<std::uint8_t> zeros;    // [64][n_groups]

  // The scale of a group, and the largest magnitude that its codes stand for.
  void set(std::int64_t r, std::int64_t g, float scale, int zero, int farthest, float& largest) {
    const auto at = static_cast<std::size_t>(r * n_groups + g);
    scales[at] = f32_to_f16(scale);
    zeros[at] = static_cast<std::uint8_t>(zero);
    largest = std::max(largest, std::abs(scale * static_cast<float>(farthest)));
  }
};

namespace {

struct GroupScale {
  float scale = 0;
  int zero = 8;
};

// As quant_codec's parameters_of, for int4 with scales of one level.
GroupScale scale_of(const kernels::WeightRange& range, const float* w, std::int64_t n,
                    const QuantFormat& format) {
  const float size = std::max(range.high, -range.low);
  float scale = 0;
  switch (format.range) {
    case QuantRange::kAbsMax:
      scale = size / 7;
      break;
    case QuantRange::kHalfStep:
      scale = size / 7.5F;
      break;
    case QuantRange::kFullRange: {
      float extreme = range.high > -range.low ? range.high : range.low;
      if (range.high == -range.low)  // the first of them decides
        extreme = size == 0 ? 0.0F : *std::find_if(w, w + n, [&](float x) { return std::abs(x) == size; });
      scale = extreme / -8;
      break;
    }
    case QuantRange::kAsymmetric:
      scale = (range.high - range.low) / 15;
      break;
  }
  const bool half = format.scale_dtype == DType::kF16;
  GroupScale out{half ? f16_to_f32(f32_to_f16(scale)) : bf16_to_f32(f32_to_bf16(scale)), 8};
  if (format.has_zeros())
    out.zero =
        out.scale > 0 ? std::clamp(static_cast<int>(std::nearbyint(-range.low / out.scale)), 0, 15) : 0;
  return out;
}

// The power of two that bfloat16 scales of a column are divided by, so that the largest lies in
// [2^14, 2^15): float16 then holds all that matter exactly.
int column_exponent(float largest_scale) {
  if (largest_scale == 0) return 0;
  int exponent = 0;
  std::frexp(largest_scale, &exponent);
  return std::max(exponent - 15, -126);
}

}  // namespace

// Quantizes row r of a panel. False: a value or a scale is not finite.
bool CpuLinearS4::quantize_row(const Runtime& runtime, const QuantFormat& format, std::int64_t r,
                               std::int64_t column, const float* row, PanelRows& rows) {
  std::vector<GroupScale> groups;
  std::vector<kernels::WeightRange> ranges;
  float largest_scale = 0;
  for (std::int64_t g = 0; g < rows.n_groups; ++g) {
    const float* w = row + g * layout_.group;
    const std::int64_t n = std::min(layout_.k - g * layout_.group, std::int64_t{layout_.group});
    ranges.push_back(runtime.quantize_weight.range(n, w));
    groups.push_back(scale_of(ranges.back(), w, n, format));
    if (!ranges.back().finite || !std::isfinite(groups.back().scale)) return false;
    largest_scale = std::max(largest_scale, std::abs(groups.back().scale));
  }
  const float share = share_of_scales(largest_scale, column);
  for (std::int64_t g = 0; g < rows.n_groups; ++g) {
    const auto [scale, zero] = groups[static_cast<std::size_t>(g)];
    const std::int64_t begin = g * layout_.group;
    const std::int64_t n = std::min(layout_.k - begin, std::int64_t{layout_.group});
    std::uint8_t* codes = rows.codes.data() + r * rows.stride + begin;
    int farthest = 0;
    if (scale == 0) {
      std::fill_n(codes, n, static_cast<std::uint8_t>(zero));
    } else {
      const auto z = static_cast<float>(zero);
      runtime.quantize_weight.codes({n, row + begin, scale, z, 0, 15, codes});
      // Codes rise or fall with the values, so the farthest from zero belongs to an end of the range.
      const float ends[2] = {ranges[static_cast<std::size_t>(g)].low,
                             ranges[static_cast<std::size_t>(g)].high};
      std::uint8_t end_codes[2];
      runtime.quantize_weight.codes({2, ends, scale, z, 0, 15, end_codes});
      farthest = std::max(std::abs(end_codes[0] - zero), std::abs(end_codes[1] - zero));
    }
    rows.set(r, g, scale * share, zero, farthest, column_scales_.f32()[column]);
  }
  return true;
}

// Row `row` of a matrix in the codec's arrays becomes row r of a panel.
void CpuLinearS4::take_row(const LinearSpec& spec, const QuantizedMatrix& matrix, std::int64_t row,
                           std::int64_t r, std::int64_t column, PanelRows& rows) {
  const bool two_level = matrix.format.two_level;
  const auto group_scale = [&](std::int64_t g) {
    const std::int64_t k = g * layout_.group;
    return two_level ? static_cast<float>(matrix.group_scale(row, k)) : matrix.scale(row, k);
  };
  float largest_scale = 0;
  for (std::int64_t g = 0; g < rows.n_groups; ++g)
    if (const float scale = matrix.scale(row, g * layout_.group); std::isfinite(scale))
      largest_scale = std::max(largest_scale, std::abs(scale));
    else
      fail(ErrorCode::kInvalidFile, "{}: row {}, group {}: its scale is {}", spec.name, column, g, scale);
  const float share = two_level ? 1.0F : share_of_scales(largest_scale, column);
  if (two_level) factors_.f32()[column] = matrix.row_scale(row);
  for (std::int64_t g = 0; g < rows.n_groups; ++g) {
    const std::int64_t begin = g * layout_.group;
    const std::int64_t end = std::min(layout_.k, begin + layout_.group);
    const int zero = layout_.asymmetric ? matrix.zero(row, begin) : 8;
    int farthest = 0;
    for (std::int64_t k = begin; k < end; ++k) {
      const int code = matrix.code(row, k) + (layout_.asymmetric ? 0 : 8);
      rows.codes[static_cast<std::size_t>(r * rows.stride + k)] = static_cast<std::uint8_t>(code);
      farthest = std::max(farthest, std::abs(code - zero));
    }
    rows.set(r, g, group_scale(g) * share, zero, farthest, column_scales_.f32()[column]);
  }
  // Products of scale and code are 8-bit integers as they are.
  if (two_level) column_scales_.f32()[column] = 127;
}

// What the scales of a column are multiplied by in its panel; the column's factor makes up for it.
float CpuLinearS4::share_of_scales(float largest_scale, std::int64_t column) {
  if (factors_.empty()) return 1;
  const int exponent = column_exponent(largest_scale);
  factors_.f32()[column] = std::ldexp(1.0F, exponent);
  return std::ldexp(1.0F, -exponent);
}

void CpuLinearS4::quantize_panel(const Runtime& runtime, const LinearSpec& spec, std::int64_t index) {
  const QuantFormat format = *spec.target_format();
  const std::int64_t first = index * kWidth;
  const std::int64_t n_rows = std::min(kWidth, n_out_ - first);
  PanelRows rows(layout_);
  std::vector<float> row(static_cast<std::size_t>(layout_.k));
  std::optional<QuantizedMatrix>
      panel;  // by the codec: scales of two levels, and the message for what is refused
  for (std::int64_t r = 0; r < n_rows; ++r) {
    const std::int64_t column = first + r;
    if (const QuantizedRow stored = stored_codes(spec, format, column); stored.matrix != nullptr) {
      take_row(spec, *stored.matrix, stored.row, r, column, rows);
      continue;
    }
    if (!format.two_level) {
      load_row(runtime, spec, column, row.data());
      if (quantize_row(runtime, format, r, column, row.data(), rows)) continue;
    }
    if (!panel) panel = quantize_by_codec(runtime, spec, format, first, n_rows);
    TRIPTYCH_CHECK(format.two_level, "the codec takes what the fast way refuses");
    take_row(spec, *panel, r, r, column, rows);
  }
  for (std::int64_t r = 0; r < n_rows; ++r) column_scales_.f32()[first + r] /= 127;
  pack_panel(index, rows);
}

void CpuLinearS4::pack_panel(std::int64_t index, const PanelRows& rows) {
  std::uint8_t* at = panels_.bytes() + index * layout_.panel_bytes();
  for (std::int64_t g = 0; g < rows.n_groups; ++g) {
    const std::int64_t blocks = layout_.blocks(g);
    for (std::int64_t r = 0; r < kWidth; ++r) {
      const std::uint8_t* codes = rows.codes.data() + r * rows.stride + g * layout_.group;
      for (std::int64_t b = 0; b < blocks; ++b) {
        std::uint32_t low = 0, high = 0;
        std::memcpy(&low, codes + 8 * b, 4);
        std::memcpy(&high, codes + 8 * b + 4, 4);
        low |= high << 4;
        std::memcpy(at + (b * kWidth + r) * 4, &low, 4);
      }
    }
    std::uint8_t* tail = at + blocks * kWidth * 4;
    for (std::int64_t r = 0; r < kWidth; ++r) {
      const auto from = static_cast<std::size_t>(r * rows.n_groups + g);
      std::memcpy(tail + 2 * r, &rows.scales[from], 2);
      if (layout_.asymmetric) tail[2 * kWidth + r] = rows.scales[from] == 0 ? 0 : rows.zeros[from];
    }
    at = tail + layout_.tail_bytes();
  }
}

void CpuLinearS4::load_column(std::int64_t k, std::int64_t first, std::int64_t n, float* out) const {
  const std::int64_t g = k / layout_.group;
  const std::int64_t i = k % layout_.group;
  for (std::int64_t p = first / kWidth; p < ceil_div(first + n, kWidth); ++p, out += kWidth) {
    const std::uint8_t* group = panel(p) + g * layout_.group_bytes(0);
    const std::uint8_t* tail = group + layout_.blocks(g) * kWidth * 4;
    for (std::int64_t j = 0; j < kWidth; ++j) {
      const std::uint8_t byte = group[i / 8 * kWidth * 4 + j * 4 + i % 4];
      const int code = i % 8 < 4 ? byte & 15 : byte >> 4;
      std::uint16_t scale;
      std::memcpy(&scale, tail + 2 * j, sizeof scale);
      const int zero = layout_.asymmetric ? tail[2 * kWidth + j] : 8;
      out[j] = static_cast<float>(code - zero) * f16_to_f32(scale);
      if (!factors_.empty()) out[j] *= factors_.f32()[p * kWidth + j];
    }
  }
}

// Rows times panels as they are stored. A few rows at a time meet a group of panels from the second-level
// cache.
void CpuLinearS4::multiply_streamed(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const {
  const std::int64_t n_groups = layout_.n_groups();
  const QuantizedRows rows = quantize_rows(runtime, args, *this, layout_.group);
  const std::int64_t max_rows = runtime.gemm_s4.max_rows;
  const std::int64_t halves = args.gated ? 2 : 1;
  const std::int64_t half = plan.tiling.panels_per_group * kWidth;
  const std::int64_t stride = halves * half;
  runtime.reserve_thread_scratch(static_cast<std::size_t>(max_rows * stride));
  const auto multiply_item = [&](const PanelItem& item, int thread) {
    float* products = runtime.thread_scratch(thread);
    const std::int64_t m = item.row_end - item.row_begin;
    const std::int64_t n_tiles = ceil_div(m, max_rows);
    const std::int64_t first = item.panel_begin * kWidth;
    const std::int64_t n_columns =
        std::min(item.panel_end * kWidth, args.gated ? n_out_ / 2 : n_out_) - first;
    for (std::int64_t t = 0; t < n_tiles; ++t) {
      const std::int64_t begin = item.row_begin + t * m / n_tiles;
      const int n_rows = static_cast<int>(item.row_begin + (t + 1) * m / n_tiles - begin);
      const auto multiply_panel = [&](std::int64_t at, float* to) {
        runtime.gemm_s4.rows({layout_, n_rows, rows.q + begin * rows.stride, rows.stride,
                              rows.group_sums + begin * n_groups, rows.scales + begin, panel(at), to,
                              stride});
        if (factors_.empty()) return;
        for (int r = 0; r < n_rows; ++r)
          for (std::int64_t c = 0; c < kWidth; ++c) to[r * stride + c] *= factors_.f32()[at * kWidth + c];
      };
      for (std::int64_t h = 0; h < halves; ++h)
        for (std::int64_t i = item.panel_begin; i < item.panel_end; ++i)
          multiply_panel(h * plan.n_panels + i, products + h * half + (i - item.panel_begin) * kWidth);
      for (int r = 0; r < n_rows; ++r) {
        float* row = products + r * stride;
        add_outliers(rows, begin + r, first, n_columns, row);
        if (args.gated) {
          add_outliers(rows, begin + r, n_out_ / 2 + first, n_columns, row + half);
          finish_gated_row(runtime, args, bias(), n_out_ / 2, begin + r, first, n_columns, row, row + half);
        } else {
          finish_row(runtime, args, bias(), begin + r, first, n_columns, row);
        }
      }
    }
  };
  for_panel_items(runtime, plan.n_panels, args.n_rows, plan.tiling, multiply_item);
}

// Rows times panels that are made 8-bit first.
void CpuLinearS4::multiply_requantized(Runtime& runtime, const LinearArgs& args,
                                       const ProductPlan& plan) const {
  const kernels::GemmS8Kernels& gemm_s8 = *plan.tiling.gemm_s8;
  const bool tiles = gemm_s8.tiles != nullptr;
  // A panel as it is made is padded to whole blocks of eight: so are the rows that tiles multiply it with.
  const std::int64_t quads = layout_.padded_k() / 4;
  const QuantizedRows rows = quantize_rows(runtime, args, *this, 0, tiles ? quads : 0);
  const bool in_tiles = tiles && runtime.gemm_s4.makes_tiles;
  const std::int64_t n_panels = plan.n_panels;
  const std::int64_t halves = args.gated ? 2 : 1;
  const std::int64_t panel_bytes =
      in_tiles ? kernels::s8_tile_steps(quads) * kernels::kS8PanelStep_bytes : layout_.padded_k() * kWidth;
  const std::int64_t panels_per_group = plan.tiling.panels_per_group;
  const std::int64_t product_floats = gemm_s8.max_rows * halves * panels_per_group * kWidth;
  runtime.reserve_thread_scratch(
      static_cast<std::size_t>(product_floats + halves * panels_per_group * panel_bytes / 4));
  const auto multiply_item = [&](const PanelItem& item, int thread) {
    float* products = runtime.thread_scratch(thread);
    auto* made = reinterpret_cast<std::uint8_t*>(products + product_floats);
    const std::int64_t n = item.panel_end - item.panel_begin;
    for (std::int64_t h = 0; h < halves; ++h)
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t p = h * n_panels + item.panel_begin + i;
        runtime.gemm_s4.requantize({layout_, panel(p), column_scales_.f32() + p * kWidth,
                                    made + (h * n + i) * panel_bytes, in_tiles});
      }
    const std::int64_t first = item.panel_begin * kWidth;
    S8Panels panels = {made,
                       panel_bytes,
                       n,
                       tiles ? 4 * quads : layout_.k,
                       in_tiles,
                       (tile_scales_.empty() ? column_scales_.f32() : tile_scales_.data()) + first,
                       bias(),
                       first,
                       std::min(item.panel_end * kWidth, n_out_) - first};
    if (args.gated) {
      panels.up = made + n * panel_bytes;
      panels.up_column_scales = panels.column_scales + n_panels * kWidth;
      panels.n_half = n_out_ / 2;
    }
    multiply_s8_panels(runtime, gemm_s8, args, rows, panels, item.row_begin, item.row_end, products);
  };
  for_panel_items(runtime, n_panels, args.n_rows, plan.tiling, multiply_item);
}

ProductPlan CpuLinearS4::plan(const Runtime& runtime, const LinearArgs& args) const {
  const std::int64_t halves = args.gated ? 2 : 1;
  ProductPlan out;
  out.n_panels = panels_to_hand_out(ceil_div(n_out_, kWidth), args);
  out.int4_algorithm = int4_algorithm(args.n_rows, runtime.policy, runtime.tuning);
  if (out.int4_algorithm == Int4Algorithm::kStreamed) {
    out.tiling = plan_panel_tiling(runtime, runtime.gemm_s8, out.n_panels, halves * layout_.panel_bytes(),
                                   args.n_rows);
    // Few rows stream the weight: panel by panel, as threads become free.
    if (args.n_rows <= runtime.gemm_s4.max_rows) {
      out.tiling.panels_per_group = 1;
      out.tiling.n_groups = out.n_panels;
      out.tiling.n_row_splits = 1;
      out.tiling.loop = runtime.plan_loop(out.n_panels, halves * layout_.panel_bytes());
    }
  } else {
    out.tiling = plan_panel_tiling(runtime, runtime.gemm_s8_for(args.n_rows), out.n_panels,
                                   halves * layout_.padded_k() * kWidth, args.n_rows, true);
  }
  return out;
}

void CpuLinearS4::run(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const {
  if (args.x_quant.step > 0) {  // 4 bits round the weights far more than x: as any other input
    LinearArgs plain = args;
    plain.x_quant = {};
    return run(runtime, plain, plan);
  }
  if (plan.int4_algorithm == Int4Algorithm::kStreamed) return multiply_streamed(runtime, args, plan);
  multiply_requantized(runtime, args, plan);
}

}  // namespace triptych::cpu
