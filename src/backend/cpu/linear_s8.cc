#include "backend/cpu/linear_s8.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "backend/cpu/linear_quantized.h"
#include "base/error.h"

namespace triptych::cpu {
namespace {

constexpr std::int64_t kWidth = kernels::kS8PanelWidth;
constexpr std::int64_t kGroup_bytes = 512 * 1024;  // of panels that stay in the second-level cache
constexpr std::int64_t kMaxGroup = 4;  // panels; 256 columns are enough for an epilogue to be cheap

}  // namespace

struct CpuLinearS8::Rows {
  std::int8_t* q;
  std::int64_t stride;
  float* scales;
  std::int32_t* sums;
};

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

// Tiles of six rows meet panels [panel_begin, panel_end), then their rows are finished.
void CpuLinearS8::multiply_panels(const Runtime& runtime, const LinearArgs& args, const Rows& rows,
                                  std::int64_t panel_begin, std::int64_t panel_end, std::int64_t row_begin,
                                  std::int64_t row_end, float* products) const {
  const std::int64_t n_tiles = ceil_div(row_end - row_begin, kernels::kS8MaxRows);
  const std::int64_t column = panel_begin * kWidth;
  const std::int64_t n_columns = std::min(panel_end * kWidth, n_out_) - column;
  const std::int64_t stride = (panel_end - panel_begin) * kWidth;
  for (std::int64_t t = 0; t < n_tiles; ++t) {
    const std::int64_t begin = row_begin + t * (row_end - row_begin) / n_tiles;
    const int n_rows = static_cast<int>(row_begin + (t + 1) * (row_end - row_begin) / n_tiles - begin);
    for (std::int64_t p = panel_begin; p < panel_end; ++p)
      runtime.gemm_s8.tile({n_rows, kernels::s8_quads(n_in_), rows.q + begin * rows.stride, rows.stride,
                            panel(p), rows.scales + begin, rows.sums + begin, scales_.data() + p * kWidth,
                            products + (p - panel_begin) * kWidth, stride});
    for (int r = 0; r < n_rows; ++r)
      finish_row(runtime, args, bias_.empty() ? nullptr : bias_.data(), begin + r, column, n_columns,
                 products + r * stride);
  }
}

void CpuLinearS8::multiply(Runtime& runtime, const LinearArgs& args) const {
  const std::int64_t m = args.n_rows;
  const std::int64_t stride = 4 * kernels::s8_quads(n_in_);
  float* memory = runtime.shared_scratch(static_cast<std::size_t>(2 * m + ceil_div(m * stride, 4)));
  const Rows rows{reinterpret_cast<std::int8_t*>(memory + 2 * m), stride, memory,
                  reinterpret_cast<std::int32_t*>(memory + m)};
  runtime.parallel(m, 6 * n_in_, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      runtime.gemm_s8.quantize(
          {n_in_, args.x + i * args.x_stride, rows.q + i * rows.stride, rows.scales + i, rows.sums + i});
  });

  const std::int64_t n_panels = ceil_div(n_out_, kWidth);
  const Division division =
      divide_panels(runtime, n_panels,
                    std::clamp<std::int64_t>(kGroup_bytes / kernels::s8_panel_bytes(n_in_), 1, kMaxGroup), m);
  runtime.reserve_thread_scratch(static_cast<std::size_t>(kernels::kS8MaxRows * division.group * kWidth));
  const std::int64_t cost_bytes =
      division.group * kernels::s8_panel_bytes(n_in_) * ceil_div(m, division.n_splits);
  runtime.parallel(division.n_groups * division.n_splits, cost_bytes,
                   [&](std::int64_t begin, std::int64_t end, int thread) {
                     for (std::int64_t i = begin; i < end; ++i) {
                       const std::int64_t g = i / division.n_splits;
                       const std::int64_t s = i % division.n_splits;
                       multiply_panels(runtime, args, rows, g * division.group,
                                       std::min(n_panels, (g + 1) * division.group),
                                       s * m / division.n_splits, (s + 1) * m / division.n_splits,
                                       runtime.thread_scratch(thread));
                     }
                   });
}

}  // namespace triptych::cpu
