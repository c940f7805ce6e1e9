#include "backend/cpu/linear_s8.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "backend/cpu/linear_quantized.h"
#include "base/error.h"

namespace triptych::cpu {
namespace {

constexpr std::int64_t kWidth = kernels::kS8PanelWidth;

}  // namespace

CpuLinearS8::CpuLinearS8(Runtime& runtime, const LinearSpec& spec) {
  n_out_ = check_parts(spec, n_in_);
  const std::int64_t n_panels = ceil_div(n_out_, kWidth);
  panels_ = Buffer::allocate(static_cast<std::size_t>(n_panels * kernels::s8_panel_bytes(n_in_)));
  scales_.assign(static_cast<std::size_t>(n_panels * kWidth), 0.0F);
  bias_ = stacked_bias(spec);
  std::atomic<bool> finite = true;
  runtime.parallel(n_panels, kWidth * n_in_ * 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) quantize_panel(spec, i);
    for (std::int64_t i = begin * kWidth; i < end * kWidth; ++i)
      if (!std::isfinite(scales_[static_cast<std::size_t>(i)])) finite = false;
  });
  if (!finite) fail(ErrorCode::kInvalidFile, "{}: infinite or NaN weights cannot be quantized", spec.name);
}

std::size_t CpuLinearS8::owned_bytes() const noexcept {
  return panels_.size_bytes() + (scales_.size() + bias_.size()) * sizeof(float);
}

void CpuLinearS8::quantize_panel(const LinearSpec& spec, std::int64_t index) {
  const std::int64_t first = index * kWidth;
  const int n_rows = static_cast<int>(std::min(kWidth, n_out_ - first));
  std::vector<float> row(static_cast<std::size_t>(n_in_));
  std::vector<std::int8_t> codes(static_cast<std::size_t>(n_rows * n_in_));
  for (int r = 0; r < n_rows; ++r) {
    load_row(spec, first + r, row.data());
    float largest = 0;
    bool finite = true;
    for (const float w : row) {
      finite = finite && std::isfinite(w);
      largest = std::max(largest, std::abs(w));
    }
    float& scale = scales_[static_cast<std::size_t>(first + r)];
    scale = finite ? largest / 127 : NAN;
    if (!finite || scale == 0) continue;
    std::int8_t* to = codes.data() + r * n_in_;
    for (const float w : row)
      *to++ = static_cast<std::int8_t>(std::clamp(std::nearbyint(w / scale), -127.0F, 127.0F));
  }
  kernels::pack_s8_panel({n_rows, n_in_, codes.data(), n_in_, const_cast<std::uint8_t*>(panel(index))});
}

void CpuLinearS8::load_column(std::int64_t k, float* out) const {
  for (std::int64_t p = 0; p < ceil_div(n_out_, kWidth); ++p) {
    const std::uint8_t* codes = panel(p) + k / 4 * kWidth * 4 + k % 4;
    for (std::int64_t j = 0; j < kWidth; ++j)
      out[p * kWidth + j] = static_cast<float>(codes[4 * j] - 128) * scale(p * kWidth + j);
  }
}

// Bias + offset * sum_k w: what the part of x that is the same everywhere adds.
const float* CpuLinearS8::bias_on_grid(Runtime& runtime, float offset) const {
  const std::int64_t n_panels = ceil_div(n_out_, kWidth);
  float* out = runtime.second_scratch(static_cast<std::size_t>(n_panels * kWidth));
  runtime.parallel(n_panels, kWidth * n_in_, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p)
      for (std::int64_t j = 0; j < kWidth; ++j) {
        const std::uint8_t* codes = panel(p) + 4 * j;
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < n_in_; ++k) sum += codes[k / 4 * kWidth * 4 + k % 4] - 128;
        const std::int64_t row = p * kWidth + j;
        out[row] = offset * static_cast<float>(sum) * scale(row);
        if (!bias_.empty() && row < n_out_) out[row] += bias_[static_cast<std::size_t>(row)];
      }
  });
  return out;
}

void CpuLinearS8::multiply(Runtime& runtime, const LinearArgs& args) const {
  const auto load = [this](std::int64_t k, float* out) { load_column(k, out); };
  const QuantizedRows rows = quantize_rows(runtime, args, n_in_, ceil_div(n_out_, kWidth) * kWidth, load);
  const std::int64_t n_panels = panels_to_hand_out(ceil_div(n_out_, kWidth), args);
  const std::int64_t halves = args.gated ? 2 : 1;
  const std::int64_t panel_bytes = kernels::s8_panel_bytes(n_in_);
  const std::int64_t together = panels_together(runtime, n_panels, halves * panel_bytes);
  runtime.reserve_thread_scratch(static_cast<std::size_t>(kernels::kS8MaxRows * halves * together * kWidth));
  const float* bias = bias_.empty() ? nullptr : bias_.data();
  if (args.grid.step > 0 && args.grid.offset != 0) bias = bias_on_grid(runtime, args.grid.offset);
  const auto multiply_item = [&](const PanelItem& item, int thread) {
    const std::int64_t first = item.panel_begin * kWidth;
    S8Panels panels = {panel(item.panel_begin),
                       panel_bytes,
                       item.panel_end - item.panel_begin,
                       n_in_,
                       scales_.data() + first,
                       bias,
                       first,
                       std::min(item.panel_end * kWidth, n_out_) - first};
    if (args.gated) {
      panels.up = panel(n_panels + item.panel_begin);
      panels.up_column_scales = panels.column_scales + n_panels * kWidth;
      panels.n_half = n_out_ / 2;
    }
    multiply_s8_panels(runtime, args, rows, panels, item.row_begin, item.row_end,
                       runtime.thread_scratch(thread));
  };
  for_panel_items(runtime, n_panels, together, halves * panel_bytes, args.n_rows, multiply_item);
}

}  // namespace triptych::cpu
