#include "backend/cpu/linear_s8.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/error.h"

namespace triptych::cpu {
namespace {

constexpr std::int64_t kWidth = kernels::kS8PanelWidth;
constexpr std::int64_t kGroup_bytes = 512 * 1024;  // of panels that stay in the second-level cache
constexpr std::int64_t kMaxGroup = 4;  // panels; 256 columns are enough for an epilogue to be cheap

// Row `index` of the stack as float32.
void load_row(const LinearSpec& spec, std::int64_t index, float* out) {
  for (const WeightEntry& part : spec.parts) {
    if (index < part.view.dim(0)) {
      const TensorView row = part.view.row(index);
      kernels::row_kernels(Isa::kScalar)
          .widen(element_type_of(part.view.dtype(), part.name), row.numel(), row.cdata(), out);
      return;
    }
    index -= part.view.dim(0);
  }
}

std::int64_t check_parts(const LinearSpec& spec, std::int64_t& n_in) {
  if (spec.parts.empty()) fail(ErrorCode::kInvalidFile, "{}: a linear without a matrix", spec.name);
  std::int64_t n_out = 0;
  for (const WeightEntry& part : spec.parts) {
    const TensorView& view = part.view;
    if (view.rank() != 2 || view.data() == nullptr || view.dim(0) < 1 || view.dim(1) < 1)
      fail(ErrorCode::kInvalidFile, "{}: expected a matrix [N, K], got {}", part.name,
           to_string(view.shape()));
    element_type_of(view.dtype(), part.name);
    if (n_out > 0 && view.dim(1) != n_in)
      fail(ErrorCode::kInvalidFile, "{}: expected [N, {}] beside the other matrices, got {}", part.name, n_in,
           to_string(view.shape()));
    n_in = view.dim(1);
    n_out += view.dim(0);
  }
  if (n_in > kernels::kS8MaxK)
    fail(ErrorCode::kUnsupported, "{}: {} inputs; 8-bit products take up to {}", spec.name, n_in,
         kernels::kS8MaxK);
  return n_out;
}

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
  std::int64_t group = std::clamp<std::int64_t>(kGroup_bytes / kernels::s8_panel_bytes(n_in_), 1, kMaxGroup);
  const std::int64_t wanted = runtime.n_threads() == 1 ? 1 : std::int64_t{3} * runtime.n_threads();
  while (group > 1 && ceil_div(n_panels, group) < wanted) --group;
  const std::int64_t n_groups = ceil_div(n_panels, group);
  // Few panels: rows are cut, too.
  const std::int64_t most_splits = std::max<std::int64_t>(1, m / (4 * kernels::kS8MaxRows));
  const std::int64_t n_splits = std::clamp<std::int64_t>(ceil_div(wanted, n_groups), 1, most_splits);
  runtime.reserve_thread_scratch(static_cast<std::size_t>(kernels::kS8MaxRows * group * kWidth));
  const std::int64_t cost_bytes = group * kernels::s8_panel_bytes(n_in_) * ceil_div(m, n_splits);
  runtime.parallel(n_groups * n_splits, cost_bytes, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t g = i / n_splits;
      const std::int64_t s = i % n_splits;
      multiply_panels(runtime, args, rows, g * group, std::min(n_panels, (g + 1) * group), s * m / n_splits,
                      (s + 1) * m / n_splits, runtime.thread_scratch(thread));
    }
  });
}

}  // namespace triptych::cpu
