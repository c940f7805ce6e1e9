#include "backend/cpu/linear_s4.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>

#include "backend/cpu/linear_quantized.h"
#include "base/error.h"
#include "base/half.h"
#include "tensor/quant_codec.h"

namespace triptych::cpu {
namespace {

constexpr std::int64_t kWidth = kernels::kS4PanelWidth;
constexpr std::int64_t kFewRows = 12;              // up to here the weight is streamed
constexpr std::int64_t kGroup_bytes = 512 * 1024;  // of 8-bit panels that stay in the second-level cache
constexpr std::int64_t kMaxGroup = 4;  // panels; 256 columns are enough for an epilogue to be cheap

}  // namespace

struct CpuLinearS4::Rows {
  std::int8_t* q;
  std::int64_t stride;
  float* scales;
  std::int32_t* sums;        // of whole rows
  std::int32_t* group_sums;  // [M, n_groups], or null
};

struct CpuLinearS4::Item {
  std::int64_t panel_begin, panel_end, row_begin, row_end;
};

CpuLinearS4::CpuLinearS4(Runtime& runtime, const LinearSpec& spec, bool exact_groups)
    : exact_groups_(exact_groups) {
  const QuantFormat& format = *spec.format;
  if (format.code != QuantCode::kInt4 || format.two_level || format.scale_dtype != DType::kF16 ||
      (format.group_size != QuantFormat::kWholeRow && format.group_size % 8 != 0))
    fail(ErrorCode::kUnsupported,
         "{}: the CPU backend computes with int4 in groups of 8, 16, ... with fp16 scales, not {}", spec.name,
         format.to_string());
  std::int64_t k = 0;
  n_out_ = check_parts(spec, k);
  layout_ = {k, format.group_of_row(k), format.has_zeros()};
  const std::int64_t n_panels = ceil_div(n_out_, kWidth);
  panels_ = Buffer::zeros(static_cast<std::size_t>(n_panels * layout_.panel_bytes()));
  column_scales_.assign(static_cast<std::size_t>(n_panels * kWidth), 0.0F);
  bias_ = stacked_bias(spec);
  std::exception_ptr problem;
  std::mutex mutex;
  runtime.parallel(n_panels, kWidth * k * 64, [&](std::int64_t begin, std::int64_t end, int) {
    try {
      for (std::int64_t i = begin; i < end; ++i) quantize_panel(spec, i);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      problem = std::current_exception();
    }
  });
  if (problem) std::rethrow_exception(problem);
}

std::size_t CpuLinearS4::owned_bytes() const noexcept {
  return panels_.size_bytes() + (column_scales_.size() + bias_.size()) * sizeof(float);
}

void CpuLinearS4::quantize_panel(const LinearSpec& spec, std::int64_t index) {
  const std::int64_t first = index * kWidth;
  const std::int64_t n_rows = std::min(kWidth, n_out_ - first);
  Tensor rows(DType::kF32, {n_rows, layout_.k});
  for (std::int64_t r = 0; r < n_rows; ++r) load_row(spec, first + r, rows.view().row(r).f32());
  QuantizedMatrix m;
  try {
    m = quantize(rows, *spec.format);
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidFile, "{}, rows from {} on: {}", spec.name, first, error.what());
  }
  std::byte* at = panels_.data() + index * layout_.panel_bytes();
  for (std::int64_t g = 0; g < layout_.n_groups(); ++g) {
    std::byte* tail = at + layout_.blocks(g) * kWidth * 4;
    const std::int64_t begin = g * layout_.group;
    const std::int64_t end = std::min(layout_.k, begin + layout_.group);
    for (std::int64_t r = 0; r < n_rows; ++r) {
      const int zero = layout_.asymmetric ? m.zero(r, begin) : 8;
      float& largest = column_scales_[static_cast<std::size_t>(first + r)];
      for (std::int64_t k = begin; k < end; ++k) {
        const int code = m.code(r, k) + (layout_.asymmetric ? 0 : 8);
        std::byte& byte = at[((k - begin) / 8) * kWidth * 4 + r * 4 + k % 4];
        byte |= static_cast<std::byte>(k % 8 < 4 ? code : code << 4);
        largest = std::max(largest, std::abs(m.scale(r, k) * static_cast<float>(code - zero)));
      }
      const std::uint16_t half = f32_to_f16(m.scale(r, begin));
      std::memcpy(tail + 2 * r, &half, sizeof half);
      if (layout_.asymmetric) tail[2 * kWidth + r] = static_cast<std::byte>(zero);
    }
    at = tail + layout_.tail_bytes();
  }
  for (std::int64_t r = 0; r < n_rows; ++r) column_scales_[static_cast<std::size_t>(first + r)] /= 127;
}

CpuLinearS4::Rows CpuLinearS4::quantize_rows(Runtime& runtime, const LinearArgs& args, bool with_sums) const {
  const std::int64_t m = args.n_rows;
  const std::int64_t stride = layout_.padded_k();
  const std::int64_t n_groups = layout_.n_groups();
  float* memory = runtime.shared_scratch(
      static_cast<std::size_t>(m * (2 + (with_sums ? n_groups : 0)) + ceil_div(m * stride, 4)));
  Rows rows{};
  rows.stride = stride;
  rows.scales = memory;
  rows.sums = reinterpret_cast<std::int32_t*>(memory + m);
  memory += 2 * m;
  if (with_sums) {
    rows.group_sums = reinterpret_cast<std::int32_t*>(memory);
    memory += m * n_groups;
  }
  rows.q = reinterpret_cast<std::int8_t*>(memory);
  runtime.parallel(m, 8 * layout_.k, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::int8_t* q = rows.q + i * stride;
      for (std::int64_t k = std::max<std::int64_t>(0, stride - 8); k < stride; ++k) q[k] = 0;
      runtime.gemm_s8.quantize({layout_.k, args.x + i * args.x_stride, q, rows.scales + i, rows.sums + i});
      if (!with_sums) continue;
      for (std::int64_t g = 0; g < n_groups; ++g) {
        std::int32_t sum = 0;
        const std::int64_t end_k = std::min(layout_.k, (g + 1) * layout_.group);
        for (std::int64_t k = g * layout_.group; k < end_k; ++k) sum += q[k];
        rows.group_sums[i * n_groups + g] = sum;
      }
    }
  });
  return rows;
}

void CpuLinearS4::multiply_streamed(const Runtime& runtime, const LinearArgs& args, const Rows& rows,
                                    std::int64_t index, float* products) const {
  const std::int64_t n_tiles = ceil_div(args.n_rows, kernels::kS4MaxRows);
  const std::int64_t column = index * kWidth;
  for (std::int64_t t = 0; t < n_tiles; ++t) {
    const std::int64_t begin = t * args.n_rows / n_tiles;
    const int n_rows = static_cast<int>((t + 1) * args.n_rows / n_tiles - begin);
    runtime.gemm_s4.rows({layout_, n_rows, rows.q + begin * rows.stride, rows.stride,
                          rows.group_sums + begin * layout_.n_groups(), rows.scales + begin, panel(index),
                          products, kWidth});
    for (int r = 0; r < n_rows; ++r)
      finish_row(runtime, args, bias_.empty() ? nullptr : bias_.data(), begin + r, column,
                 std::min(kWidth, n_out_ - column), products + r * kWidth);
  }
}

// Panels become 8-bit, then tiles of six rows meet all of them, then their rows are finished.
void CpuLinearS4::multiply_requantized(const Runtime& runtime, const LinearArgs& args, const Rows& rows,
                                       const Item& item, float* scratch) const {
  const std::int64_t panel_bytes = layout_.padded_k() * kWidth;
  const std::int64_t n_panels = item.panel_end - item.panel_begin;
  const std::int64_t stride = n_panels * kWidth;
  float* products = scratch;
  auto* panels = reinterpret_cast<std::uint8_t*>(scratch + kernels::kS8MaxRows * stride);
  for (std::int64_t p = 0; p < n_panels; ++p)
    runtime.gemm_s4.requantize({layout_, panel(item.panel_begin + p),
                                column_scales_.data() + (item.panel_begin + p) * kWidth,
                                panels + p * panel_bytes});
  const std::int64_t column = item.panel_begin * kWidth;
  const std::int64_t n_columns = std::min(item.panel_end * kWidth, n_out_) - column;
  const std::int64_t n_rows_all = item.row_end - item.row_begin;
  const std::int64_t n_tiles = ceil_div(n_rows_all, kernels::kS8MaxRows);
  for (std::int64_t t = 0; t < n_tiles; ++t) {
    const std::int64_t begin = item.row_begin + t * n_rows_all / n_tiles;
    const int n_rows = static_cast<int>(item.row_begin + (t + 1) * n_rows_all / n_tiles - begin);
    for (std::int64_t p = 0; p < n_panels; ++p)
      runtime.gemm_s8.tile({n_rows, kernels::s8_quads(layout_.k), rows.q + begin * rows.stride, rows.stride,
                            panels + p * panel_bytes, rows.scales + begin, rows.sums + begin,
                            column_scales_.data() + (item.panel_begin + p) * kWidth, products + p * kWidth,
                            stride});
    for (int r = 0; r < n_rows; ++r)
      finish_row(runtime, args, bias_.empty() ? nullptr : bias_.data(), begin + r, column, n_columns,
                 products + r * stride);
  }
}

void CpuLinearS4::multiply(Runtime& runtime, const LinearArgs& args) const {
  const std::int64_t m = args.n_rows;
  const std::int64_t n_panels = ceil_div(n_out_, kWidth);
  const bool streamed = m <= kFewRows || exact_groups_;
  const Rows rows = quantize_rows(runtime, args, streamed);
  if (streamed) {
    runtime.reserve_thread_scratch(static_cast<std::size_t>(kernels::kS4MaxRows * kWidth));
    runtime.parallel(n_panels, layout_.panel_bytes() * ceil_div(m, kernels::kS4MaxRows),
                     [&](std::int64_t begin, std::int64_t end, int thread) {
                       for (std::int64_t i = begin; i < end; ++i)
                         multiply_streamed(runtime, args, rows, i, runtime.thread_scratch(thread));
                     });
    return;
  }
  const std::int64_t s8_bytes = layout_.padded_k() * kWidth;
  const Division division =
      divide_panels(runtime, n_panels, std::clamp<std::int64_t>(kGroup_bytes / s8_bytes, 1, kMaxGroup), m);
  runtime.reserve_thread_scratch(
      static_cast<std::size_t>(division.group * (kernels::kS8MaxRows * kWidth + ceil_div(s8_bytes, 4))));
  runtime.parallel(division.n_groups * division.n_splits,
                   division.group * s8_bytes * ceil_div(m, division.n_splits),
                   [&](std::int64_t begin, std::int64_t end, int thread) {
                     for (std::int64_t i = begin; i < end; ++i) {
                       const std::int64_t g = i / division.n_splits;
                       const std::int64_t s = i % division.n_splits;
                       multiply_requantized(runtime, args, rows,
                                            {g * division.group, std::min(n_panels, (g + 1) * division.group),
                                             s * m / division.n_splits, (s + 1) * m / division.n_splits},
                                            runtime.thread_scratch(thread));
                     }
                   });
}

}  // namespace triptych::cpu
