#include "backend/cpu/linear_s8.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace triptych::cpu {
namespace {

constexpr std::int64_t kWidth = kernels::kS8PanelWidth;

}  // namespace

CpuLinearS8::CpuLinearS8(Runtime& runtime, const LinearSpec& spec) {
  QuantizedShape shape = quantized_shape(runtime.weight_memory, spec);
  n_out_ = shape.n_out;
  n_in_ = shape.n_in;
  bias_ = std::move(shape.bias);
  const std::int64_t n_panels = ceil_div(n_out_, kWidth);
  const Shape panels{n_panels, kernels::s8_panel_bytes(n_in_)};
  if (spec.packed() != nullptr) {
    panels_ = WeightArray::borrow(spec, "panels", DType::kU8, panels);
    scales_ = WeightArray::borrow_finite(spec, "column_scales", {n_panels * kWidth});
    quant_ = spec.packed()->activation_quant;
    if (quant_.step > 0)
      compensated_bias_ = WeightArray::borrow_finite(spec, "compensated_bias", {n_panels * kWidth});
    return;
  }
  panels_ = WeightArray::make(runtime.weight_memory, "panels", DType::kU8, panels);
  scales_ = WeightArray::make(runtime.weight_memory, "column_scales", DType::kF32, {n_panels * kWidth});
  make_panels(runtime, spec, n_out_, n_in_, [&](std::int64_t i) { quantize_panel(runtime, spec, i); });
  quant_ = spec.activation_quant;
  if (quant_.step == 0) return;
  compensated_bias_ =
      WeightArray::make(runtime.weight_memory, "compensated_bias", DType::kF32, {n_panels * kWidth});
  bias_with_offset(runtime, quant_.offset, compensated_bias_.f32());
}

std::size_t CpuLinearS8::owned_bytes() const noexcept {
  return panels_.owned_bytes() + scales_.owned_bytes() + bias_.owned_bytes() +
         compensated_bias_.owned_bytes();
}

std::vector<PackedArray> CpuLinearS8::packed() const {
  std::vector<PackedArray> out;
  for (const WeightArray* array : {&panels_, &scales_, &bias_, &compensated_bias_}) array->append_to(out);
  return out;
}

void CpuLinearS8::quantize_panel(const Runtime& runtime, const LinearSpec& spec, std::int64_t index) {
  const std::int64_t first = index * kWidth;
  const int n_rows = static_cast<int>(std::min(kWidth, n_out_ - first));
  const std::int64_t padded_k = kernels::s8_quads(n_in_) * 4;
  std::vector<float> row(static_cast<std::size_t>(n_in_));
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n_rows * padded_k), 128);
  const QuantFormat format = *spec.target_format();
  for (int r = 0; r < n_rows; ++r) {
    if (const QuantizedRow stored = stored_codes(spec, format, first + r); stored.matrix != nullptr) {
      take_row(spec, stored, first + r, codes.data() + r * padded_k);
      continue;
    }
    load_row(runtime, spec, first + r, row.data());
    const kernels::WeightRange range = runtime.quantize_weight.range(n_in_, row.data());
    if (!range.finite)
      fail(ErrorCode::kInvalidFile, "{}: infinite or NaN weights cannot be quantized", spec.name);
    float& scale = scales_.f32()[first + r];
    scale = std::max(range.high, -range.low) / 127;
    if (scale != 0)
      runtime.quantize_weight.codes({n_in_, row.data(), scale, 128, 1, 255, codes.data() + r * padded_k});
  }
  kernels::pack_s8_panel(
      {n_rows, n_in_, codes.data(), padded_k, panels_.bytes() + index * kernels::s8_panel_bytes(n_in_)});
}

void CpuLinearS8::take_row(const LinearSpec& spec, const QuantizedRow& stored, std::int64_t row,
                           std::uint8_t* codes) {
  const float scale = stored.matrix->scale(stored.row, 0);
  if (!std::isfinite(scale))
    fail(ErrorCode::kInvalidFile, "{}: row {}: its scale is {}", spec.name, row, scale);
  scales_.f32()[row] = scale;
  for (std::int64_t k = 0; k < n_in_; ++k)
    codes[k] = static_cast<std::uint8_t>(stored.matrix->code(stored.row, k) + 128);
}

void CpuLinearS8::load_column(std::int64_t k, std::int64_t first, std::int64_t n, float* out) const {
  for (std::int64_t p = first / kWidth; p < ceil_div(first + n, kWidth); ++p, out += kWidth) {
    const std::uint8_t* codes = panel(p) + k / 4 * kWidth * 4 + k % 4;
    for (std::int64_t j = 0; j < kWidth; ++j)
      out[j] = static_cast<float>(codes[4 * j] - 128) * scale(p * kWidth + j);
  }
}

// Bias + offset * sum_k w: what the part of x that is the same everywhere adds.
void CpuLinearS8::bias_with_offset(Runtime& runtime, float offset, float* out) const {
  const std::int64_t n_panels = ceil_div(n_out_, kWidth);
  runtime.parallel(n_panels, kWidth * n_in_, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p)
      for (std::int64_t j = 0; j < kWidth; ++j) {
        const std::uint8_t* codes = panel(p) + 4 * j;
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < n_in_; ++k) sum += codes[k / 4 * kWidth * 4 + k % 4] - 128;
        const std::int64_t row = p * kWidth + j;
        out[row] = offset * static_cast<float>(sum) * scale(row);
        if (bias_.f32() != nullptr && row < n_out_) out[row] += bias_.f32()[row];
      }
  });
}

QuantizedRows CpuLinearS8::rows_of(Runtime& runtime, const LinearArgs& args, std::int64_t tile_quads) const {
  if (args.x_int8 != nullptr) return int8_rows_of(runtime, args, n_in_, tile_quads);
  if (args.x_quant.step > 0 || quant_.step == 0) return quantize_rows(runtime, args, *this, 0, tile_quads);
  LinearArgs with_weights_quant = args;
  with_weights_quant.x_quant = quant_;
  return quantize_rows(runtime, with_weights_quant, *this, 0, tile_quads);
}

// [N rounded up to 64] or null; parameters of the call come before the weight's own.
const float* CpuLinearS8::bias_of(Runtime& runtime, const ActivationQuant& quant_of_call) const {
  if (quant_of_call.step == 0) return quant_.step > 0 ? compensated_bias_.f32() : bias_.f32();
  if (quant_of_call.offset == 0) return bias_.f32();
  float* out = runtime.second_scratch(static_cast<std::size_t>(ceil_div(n_out_, kWidth) * kWidth));
  bias_with_offset(runtime, quant_of_call.offset, out);
  return out;
}

ProductPlan CpuLinearS8::plan(const Runtime& runtime, const LinearArgs& args) const {
  ProductPlan out;
  out.n_panels = panels_to_hand_out(ceil_div(n_out_, kWidth), args);
  const std::int64_t panel_bytes = (args.gated ? 2 : 1) * kernels::s8_panel_bytes(n_in_);
  out.tiling =
      plan_panel_tiling(runtime, runtime.gemm_s8_for(args.n_rows), out.n_panels, panel_bytes, args.n_rows);
  return out;
}

void CpuLinearS8::run(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const {
  const kernels::GemmS8Kernels& gemm_s8 = *plan.tiling.gemm_s8;
  const QuantizedRows rows = rows_of(runtime, args, gemm_s8.tiles != nullptr ? kernels::s8_quads(n_in_) : 0);
  const std::int64_t n_panels = plan.n_panels;
  const std::int64_t halves = args.gated ? 2 : 1;
  const std::int64_t panel_bytes = kernels::s8_panel_bytes(n_in_);
  const std::int64_t panels_per_group = plan.tiling.panels_per_group;
  runtime.reserve_thread_scratch(
      static_cast<std::size_t>(gemm_s8.max_rows * halves * panels_per_group * kWidth));
  const float* bias = bias_of(runtime, args.x_quant);
  const auto multiply_item = [&](const PanelItem& item, int thread) {
    const std::int64_t first = item.panel_begin * kWidth;
    S8Panels panels = {panel(item.panel_begin),
                       panel_bytes,
                       item.panel_end - item.panel_begin,
                       n_in_,
                       false,
                       scales_.f32() + first,
                       bias,
                       first,
                       std::min(item.panel_end * kWidth, n_out_) - first};
    if (args.gated) {
      panels.up = panel(n_panels + item.panel_begin);
      panels.up_column_scales = panels.column_scales + n_panels * kWidth;
      panels.n_half = n_out_ / 2;
    }
    multiply_s8_panels(runtime, gemm_s8, args, rows, panels, item.row_begin, item.row_end,
                       runtime.thread_scratch(thread));
  };
  for_panel_items(runtime, n_panels, args.n_rows, plan.tiling, multiply_item);
}

}  // namespace triptych::cpu
