#include "backend/cpu/linear_s4.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>

#include "backend/cpu/linear_quantized.h"
#include "base/error.h"
#include "base/half.h"
#include "tensor/quant_codec.h"

namespace triptych::cpu {
namespace {

constexpr std::int64_t kWidth = kernels::kS4PanelWidth;
constexpr std::int64_t kFewRows = 12;  // up to here the weight is streamed

}  // namespace

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

void CpuLinearS4::load_column(std::int64_t k, float* out) const {
  const std::int64_t g = k / layout_.group;
  const std::int64_t i = k % layout_.group;
  for (std::int64_t p = 0; p < ceil_div(n_out_, kWidth); ++p) {
    const std::uint8_t* group = panel(p) + g * layout_.group_bytes(0);
    const std::uint8_t* tail = group + layout_.blocks(g) * kWidth * 4;
    for (std::int64_t j = 0; j < kWidth; ++j) {
      const std::uint8_t byte = group[i / 8 * kWidth * 4 + j * 4 + i % 4];
      const int code = i % 8 < 4 ? byte & 15 : byte >> 4;
      std::uint16_t scale;
      std::memcpy(&scale, tail + 2 * j, sizeof scale);
      const int zero = layout_.asymmetric ? tail[2 * kWidth + j] : 8;
      out[p * kWidth + j] = static_cast<float>(code - zero) * f16_to_f32(scale);
    }
  }
}

// Rows times panels as they are stored, six rows at a time.
void CpuLinearS4::multiply_streamed(Runtime& runtime, const LinearArgs& args) const {
  const std::int64_t m = args.n_rows;
  const std::int64_t n_groups = layout_.n_groups();
  const auto load = [this](std::int64_t k, float* out) { load_column(k, out); };
  const QuantizedRows rows =
      quantize_rows(runtime, args, layout_.k, ceil_div(n_out_, kWidth) * kWidth, load, m * n_groups);
  auto* group_sums = reinterpret_cast<std::int32_t*>(rows.more);  // [M, n_groups]
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t g = 0; g < n_groups; ++g) {
      const std::int8_t* q = rows.q + i * rows.stride;
      group_sums[i * n_groups + g] = std::accumulate(
          q + g * layout_.group, q + std::min(layout_.k, (g + 1) * layout_.group), std::int32_t{0});
    }
  const std::int64_t n_tiles = ceil_div(m, kernels::kS4MaxRows);
  const std::int64_t n_panels = panels_to_hand_out(ceil_div(n_out_, kWidth), args);
  runtime.reserve_thread_scratch(static_cast<std::size_t>(kernels::kS4MaxRows * 2 * kWidth));
  const auto multiply_panel = [&](std::int64_t index, float* products) {
    const std::int64_t column = index * kWidth;
    for (std::int64_t t = 0; t < n_tiles; ++t) {
      const std::int64_t begin = t * m / n_tiles;
      const int n_rows = static_cast<int>((t + 1) * m / n_tiles - begin);
      const auto multiply_one = [&](std::int64_t at, float* to) {
        runtime.gemm_s4.rows({layout_, n_rows, rows.q + begin * rows.stride, rows.stride,
                              group_sums + begin * n_groups, rows.scales + begin, panel(at), to, 2 * kWidth});
      };
      multiply_one(index, products);
      if (args.gated) multiply_one(n_panels + index, products + kWidth);
      for (int r = 0; r < n_rows; ++r) {
        float* row = products + r * 2 * kWidth;
        const std::int64_t n_columns = std::min(kWidth, n_out_ - column);
        add_outliers(rows, begin + r, column, n_columns, row);
        if (args.gated) add_outliers(rows, begin + r, n_out_ / 2 + column, n_columns, row + kWidth);
        if (args.gated) {
          finish_gated_row(runtime, args, bias(), n_out_ / 2, begin + r, column, kWidth, row, row + kWidth);
        } else {
          finish_row(runtime, args, bias(), begin + r, column, std::min(kWidth, n_out_ - column), row);
        }
      }
    }
  };
  runtime.parallel(n_panels, layout_.panel_bytes() * n_tiles * (args.gated ? 2 : 1),
                   [&](std::int64_t begin, std::int64_t end, int thread) {
                     for (std::int64_t i = begin; i < end; ++i)
                       multiply_panel(i, runtime.thread_scratch(thread));
                   });
}

// Rows times panels that are made 8-bit first.
void CpuLinearS4::multiply_requantized(Runtime& runtime, const LinearArgs& args) const {
  const auto load = [this](std::int64_t k, float* out) { load_column(k, out); };
  const QuantizedRows rows = quantize_rows(runtime, args, layout_.k, ceil_div(n_out_, kWidth) * kWidth, load);
  const std::int64_t n_panels = panels_to_hand_out(ceil_div(n_out_, kWidth), args);
  const std::int64_t halves = args.gated ? 2 : 1;
  const std::int64_t panel_bytes = layout_.padded_k() * kWidth;
  const std::int64_t together = panels_together(runtime, n_panels, halves * panel_bytes);
  const std::int64_t product_floats = kernels::kS8MaxRows * halves * together * kWidth;
  runtime.reserve_thread_scratch(
      static_cast<std::size_t>(product_floats + halves * together * panel_bytes / 4));
  const auto multiply_item = [&](const PanelItem& item, int thread) {
    float* products = runtime.thread_scratch(thread);
    auto* made = reinterpret_cast<std::uint8_t*>(products + product_floats);
    const std::int64_t n = item.panel_end - item.panel_begin;
    for (std::int64_t h = 0; h < halves; ++h)
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t p = h * n_panels + item.panel_begin + i;
        runtime.gemm_s4.requantize(
            {layout_, panel(p), column_scales_.data() + p * kWidth, made + (h * n + i) * panel_bytes});
      }
    const std::int64_t first = item.panel_begin * kWidth;
    S8Panels panels = {made,
                       panel_bytes,
                       n,
                       layout_.k,
                       column_scales_.data() + first,
                       bias(),
                       first,
                       std::min(item.panel_end * kWidth, n_out_) - first};
    if (args.gated) {
      panels.up = made + n * panel_bytes;
      panels.up_column_scales = panels.column_scales + n_panels * kWidth;
      panels.n_half = n_out_ / 2;
    }
    multiply_s8_panels(runtime, args, rows, panels, item.row_begin, item.row_end, products);
  };
  for_panel_items(runtime, n_panels, together, halves * panel_bytes, args.n_rows, multiply_item);
}

void CpuLinearS4::multiply(Runtime& runtime, const LinearArgs& args) const {
  if (args.grid.step > 0) {  // 4 bits round the weights far more than x: as any other input
    LinearArgs plain = args;
    plain.grid = {};
    return multiply(runtime, plain);
  }
  if (args.n_rows <= kFewRows || exact_groups_) return multiply_streamed(runtime, args);
  multiply_requantized(runtime, args);
}

}  // namespace triptych::cpu
