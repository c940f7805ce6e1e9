// y = activation(x W^T + b) + residual with weights of 4 bits in groups and 8-bit activations. Few rows
// stream the weight as it is stored; many rows turn each panel into 8-bit weights first, once a call, and
// multiply those (kernels/gemm_s4).
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cpu/linear_quantized.h"
#include "backend/cpu/packed_arrays.h"
#include "backend/cpu/runtime.h"
#include "tensor/quant_codec.h"

namespace triptych::cpu {

/// Matrices stacked along N, in panels of 64 output channels.
class CpuLinearS4 final : public QuantizedLinear {
 public:
  /// Borrows a packed linear, takes codes of that format, or quantizes: int4 with groups a multiple of 8 or
  /// whole rows, float16 or bfloat16 scales, one or two levels. Scales of panels are float16: with bfloat16
  /// they are kept as shares of a power of two a column, with two levels as the integers they are; that
  /// power, or the row's scale, is the column's factor. Throws Error(kUnsupported) for other formats,
  /// Error(kInvalidFile) for values that are not finite, naming the tensor.
  CpuLinearS4(Runtime& runtime, const LinearSpec& spec);

  std::int64_t n_out() const noexcept override { return n_out_; }
  std::int64_t n_in() const noexcept override { return layout_.k; }
  std::size_t owned_bytes() const noexcept override;
  std::size_t borrowed_bytes() const noexcept override { return total_bytes() - owned_bytes(); }
  std::size_t read_bytes() const noexcept override { return panels_.size_bytes(); }
  std::vector<PackedArray> packed() const override;
  ProductPlan plan(const Runtime& runtime, const LinearArgs& args) const override;
  void run(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const override;
  void load_column(std::int64_t k, std::int64_t first, std::int64_t n, float* out) const override;
  bool multiplies_gated() const noexcept override { return n_out_ % 128 == 0; }  // halves of whole panels

 private:
  struct PanelRows;
  std::size_t total_bytes() const noexcept;
  void quantize_panel(const Runtime& runtime, const LinearSpec& spec, std::int64_t index);
  bool quantize_row(const Runtime& runtime, const QuantFormat& format, std::int64_t r, std::int64_t column,
                    const float* row, PanelRows& rows);
  void take_row(const LinearSpec& spec, const QuantizedMatrix& matrix, std::int64_t row, std::int64_t r,
                std::int64_t column, PanelRows& rows);
  float share_of_scales(float largest_scale, std::int64_t column);
  void pack_panel(std::int64_t index, const PanelRows& rows);
  void multiply_streamed(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const;
  void multiply_requantized(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const;
  const float* bias() const noexcept { return bias_.f32(); }
  const std::uint8_t* panel(std::int64_t index) const noexcept {
    return panels_.bytes() + index * layout_.panel_bytes();
  }

  std::int64_t n_out_ = 0;
  kernels::S4Layout layout_{};
  WeightArray panels_;              // [panels][panel_bytes]
  WeightArray column_scales_;       // [N rounded up to 64] of the 8-bit panels, without the factors
  WeightArray factors_;             // the same, of a whole column; empty: all are 1
  WeightArray bias_;                // the same, or empty
  std::vector<float> tile_scales_;  // column_scales_ times factors_, when there are factors
};

}  // namespace triptych::cpu
