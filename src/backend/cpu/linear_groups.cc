#include "backend/cpu/linear_groups.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "backend/cpu/linear_quantized.h"
#include "base/error.h"
#include "tensor/quant_codec.h"

namespace triptych::cpu {
namespace {

constexpr std::int64_t kWidth = kernels::kS8PanelWidth;
constexpr std::int64_t kQuad_bytes = kWidth * 4;

// nf4's levels as 8-bit weights, of both halves of a byte.
struct Nf4Tables {
  std::array<std::uint8_t, 256> low, high;
  Nf4Tables() {
    for (std::size_t i = 0; i < 256; ++i) {
      low[i] = level(i & 15U);
      high[i] = level(i >> 4);
    }
  }
  static std::uint8_t level(std::size_t code) {
    return static_cast<std::uint8_t>(std::nearbyint(kNf4Levels[code] * 127) + 128);
  }
};
const Nf4Tables& nf4_tables() {
  static const Nf4Tables tables;
  return tables;
}

}  // namespace

CpuLinearGroups::CpuLinearGroups(Runtime& runtime, const LinearSpec& spec) {
  const QuantFormat format = *spec.target_format();
  is_nf4_ = format.code == QuantCode::kNf4;
  if ((!is_nf4_ && format.code != QuantCode::kInt8) || format.group_size % 8 != 0)
    fail(ErrorCode::kUnsupported, "{}: the CPU backend does not compute with {}", spec.name,
         format.to_string());
  QuantizedShape shape = quantized_shape(runtime.weight_memory, spec);
  n_out_ = shape.n_out;
  n_in_ = shape.n_in;
  bias_ = std::move(shape.bias);
  group_ = std::min(format.group_of_row(n_in_), n_in_);
  n_groups_ = format.n_groups(n_in_);
  const std::int64_t n_panels = ceil_div(n_out_, kWidth);
  const Shape panels{n_panels, panel_bytes()};
  const Shape scales{n_panels, n_groups_, kWidth};
  if (spec.packed() != nullptr) {
    panels_ = WeightArray::borrow(spec, "panels", DType::kU8, panels);
    group_scales_ = WeightArray::borrow_finite(spec, "group_scales", scales);
    return;
  }
  panels_ = WeightArray::make(runtime.weight_memory, "panels", DType::kU8, panels);
  group_scales_ = WeightArray::make(runtime.weight_memory, "group_scales", DType::kF32, scales);
  make_panels(runtime, spec, n_out_, n_in_, [&](std::int64_t i) { quantize_panel(runtime, spec, i); });
}

std::int64_t CpuLinearGroups::panel_bytes() const noexcept {
  return is_nf4_ ? ceil_div(n_in_, 8) * kQuad_bytes : kernels::s8_panel_bytes(n_in_);
}

std::size_t CpuLinearGroups::owned_bytes() const noexcept {
  return panels_.owned_bytes() + group_scales_.owned_bytes() + bias_.owned_bytes();
}

std::vector<PackedArray> CpuLinearGroups::packed() const {
  std::vector<PackedArray> out;
  for (const WeightArray* array : {&panels_, &group_scales_, &bias_}) array->append_to(out);
  return out;
}

void CpuLinearGroups::quantize_panel(const Runtime& runtime, const LinearSpec& spec, std::int64_t index) {
  const std::int64_t first = index * kWidth;
  const std::int64_t n_rows = std::min(kWidth, n_out_ - first);
  const QuantFormat format = *spec.target_format();
  // Level 7 of nf4 is zero.
  std::fill_n(panels_.bytes() + index * panel_bytes(), panel_bytes(),
              static_cast<std::uint8_t>(is_nf4_ ? 0x77 : 128));
  std::optional<QuantizedMatrix> panel;
  for (std::int64_t r = 0; r < n_rows; ++r) {
    if (const QuantizedRow stored = stored_codes(spec, format, first + r); stored.matrix != nullptr) {
      pack_row(spec, *stored.matrix, stored.row, index, r);
      continue;
    }
    if (!panel) panel = quantize_by_codec(runtime, spec, format, first, n_rows);
    pack_row(spec, *panel, r, index, r);
  }
}

void CpuLinearGroups::pack_row(const LinearSpec& spec, const QuantizedMatrix& matrix, std::int64_t row,
                               std::int64_t index, std::int64_t r) {
  std::uint8_t* panel = panels_.bytes() + index * panel_bytes();
  for (std::int64_t k = 0; k < n_in_; ++k) {
    if (is_nf4_) {
      std::uint8_t& byte = panel[k / 8 * kQuad_bytes + r * 4 + k % 4];
      const auto code = static_cast<unsigned>(matrix.code(row, k));
      byte = static_cast<std::uint8_t>(k % 8 < 4 ? (byte & 0xF0U) | code : (byte & 0x0FU) | code << 4);
    } else {
      panel[k / 4 * kQuad_bytes + r * 4 + k % 4] = static_cast<std::uint8_t>(matrix.code(row, k) + 128);
    }
  }
  for (std::int64_t g = 0; g < n_groups_; ++g) {
    const float scale = matrix.scale(row, g * group_);
    if (!std::isfinite(scale))
      fail(ErrorCode::kInvalidFile, "{}: row {}, group {}: its scale is {}", spec.name, index * kWidth + r, g,
           scale);
    group_scales_.f32()[(index * n_groups_ + g) * kWidth + r] = is_nf4_ ? scale / 127 : scale;
  }
}

const std::uint8_t* CpuLinearGroups::s8_panel(std::int64_t index, std::uint8_t* scratch) const {
  const std::uint8_t* panel = panels_.bytes() + index * panel_bytes();
  if (!is_nf4_) return panel;
  const Nf4Tables& tables = nf4_tables();
  for (std::int64_t b = 0; b < ceil_div(n_in_, 8); ++b, panel += kQuad_bytes, scratch += 2 * kQuad_bytes)
    for (std::int64_t i = 0; i < kQuad_bytes; ++i) {
      scratch[i] = tables.low[panel[i]];
      scratch[kQuad_bytes + i] = tables.high[panel[i]];
    }
  return scratch - ceil_div(n_in_, 8) * 2 * kQuad_bytes;
}

void CpuLinearGroups::load_column(std::int64_t k, std::int64_t first, std::int64_t n, float* out) const {
  const Nf4Tables& tables = nf4_tables();
  for (std::int64_t p = first / kWidth; p < ceil_div(first + n, kWidth); ++p, out += kWidth) {
    const std::uint8_t* codes =
        panels_.bytes() + p * panel_bytes() + k / (is_nf4_ ? 8 : 4) * kQuad_bytes + k % 4;
    const float* scales = group_scales_.f32() + (p * n_groups_ + k / group_) * kWidth;
    for (std::int64_t j = 0; j < kWidth; ++j) {
      const std::uint8_t byte = codes[4 * j];
      const int code = !is_nf4_ ? byte : k % 8 < 4 ? tables.low[byte] : tables.high[byte];
      out[j] = static_cast<float>(code - 128) * scales[j];
    }
  }
}

ProductPlan CpuLinearGroups::plan(const Runtime& runtime, const LinearArgs& args) const {
  ProductPlan out;
  out.n_panels = ceil_div(n_out_, kWidth);
  out.n_tiles = ceil_div(args.n_rows, runtime.gemm_s8.max_rows);
  out.loop = runtime.plan_loop(out.n_panels, panel_bytes() * out.n_tiles);
  return out;
}

void CpuLinearGroups::run(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const {
  const std::int64_t m = args.n_rows;
  const QuantizedRows rows = quantize_rows(runtime, args, *this, group_);
  const std::int64_t tile_floats = runtime.gemm_s8.max_rows * kWidth;
  const std::int64_t expanded_bytes = is_nf4_ ? ceil_div(n_in_, 8) * 2 * kQuad_bytes : 0;
  runtime.reserve_thread_scratch(static_cast<std::size_t>(2 * tile_floats + expanded_bytes / 4));
  const std::int64_t n_tiles = plan.n_tiles;
  const auto multiply_panel = [&](std::int64_t index, float* sums) {
    float* products = sums + tile_floats;
    const std::uint8_t* panel = s8_panel(index, reinterpret_cast<std::uint8_t*>(sums + 2 * tile_floats));
    for (std::int64_t t = 0; t < n_tiles; ++t) {
      const std::int64_t begin = t * m / n_tiles;
      const int n_rows = static_cast<int>((t + 1) * m / n_tiles - begin);
      std::fill_n(sums, n_rows * kWidth, 0.0F);
      for (std::int64_t g = 0; g < n_groups_; ++g) {
        const std::int64_t size = std::min(group_, n_in_ - g * group_);
        std::int32_t group_sums[kernels::kS8MaxRows];
        for (int r = 0; r < n_rows; ++r) group_sums[r] = rows.group_sums[(begin + r) * n_groups_ + g];
        runtime.gemm_s8.tile({n_rows, kernels::s8_quads(size), rows.q + begin * rows.stride + g * group_,
                              rows.stride, panel + g * group_ / 4 * kQuad_bytes, rows.scales + begin,
                              group_sums, group_scales_.f32() + (index * n_groups_ + g) * kWidth, products,
                              kWidth});
        for (std::int64_t i = 0; i < n_rows * kWidth; ++i) sums[i] += products[i];
      }
      for (int r = 0; r < n_rows; ++r) {
        add_outliers(rows, begin + r, index * kWidth, kWidth, sums + r * kWidth);
        finish_row(runtime, args, bias_.f32(), begin + r, index * kWidth,
                   std::min(kWidth, n_out_ - index * kWidth), sums + r * kWidth);
      }
    }
  };
  runtime.parallel(plan.loop, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; ++i) multiply_panel(i, runtime.thread_scratch(thread));
  });
}

}  // namespace triptych::cpu
