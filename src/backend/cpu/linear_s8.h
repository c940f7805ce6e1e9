// y = activation(x W^T + b) + residual with 8-bit weights and activations: W quantized once, a scale per
// output channel; x on the way in, a scale per row (token). Sums are exact 32-bit integers (kernels/gemm_s8).
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/linear_quantized.h"
#include "backend/cpu/packed_arrays.h"
#include "backend/cpu/runtime.h"

namespace triptych::cpu {

/// Matrices stacked along N, in panels of 64 output channels.
class CpuLinearS8 final : public QuantizedLinear {
 public:
  /// Borrows a packed linear, takes codes that are int8 per channel, or quantizes with the threads of
  /// `runtime`: scale = max |w| / 127 a row, as quant_codec's "int8:channel:fp32". Throws Error(kInvalidFile)
  /// naming the tensor for values that are not finite, K above kS8MaxK, or stored arrays that do not fit.
  /// With static activation quantization (of spec, or of the packed linear) inputs are rounded to it and no
  /// element of them stays a float.
  CpuLinearS8(Runtime& runtime, const LinearSpec& spec);

  std::int64_t n_out() const noexcept override { return n_out_; }
  std::int64_t n_in() const noexcept override { return n_in_; }
  std::size_t owned_bytes() const noexcept override;
  std::size_t read_bytes() const noexcept override { return total_bytes(); }
  std::size_t borrowed_bytes() const noexcept override { return total_bytes() - owned_bytes(); }
  ActivationQuant activation_quant() const noexcept override { return quant_; }
  std::vector<PackedArray> packed() const override;
  ProductPlan plan(const Runtime& runtime, const LinearArgs& args) const override;
  void run(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const override;
  void load_column(std::int64_t k, std::int64_t first, std::int64_t n, float* out) const override;
  bool multiplies_gated() const noexcept override { return n_out_ % 128 == 0; }  // halves of whole panels

  const std::uint8_t* panel(std::int64_t index) const noexcept {
    return panels_.bytes() + index * kernels::s8_panel_bytes(n_in_);
  }
  float scale(std::int64_t row) const { return scales_.f32()[row]; }

 private:
  void bias_with_offset(Runtime& runtime, float offset, float* out) const;
  QuantizedRows rows_of(Runtime& runtime, const LinearArgs& args, std::int64_t tile_quads) const;
  const float* bias_of(Runtime& runtime, const ActivationQuant& quant_of_call) const;
  std::size_t total_bytes() const noexcept {
    return panels_.size_bytes() + scales_.size_bytes() + bias_.size_bytes() + compensated_bias_.size_bytes();
  }
  /// A stored row; `codes` [n_in] become w + 128.
  void take_row(const LinearSpec& spec, const QuantizedRow& stored, std::int64_t row, std::uint8_t* codes);
  void quantize_panel(const Runtime& runtime, const LinearSpec& spec, std::int64_t index);

  std::int64_t n_out_ = 0;
  std::int64_t n_in_ = 0;
  WeightArray panels_;  // [panels][panel_bytes]
  WeightArray scales_;  // [N rounded up to 64], zero beyond N
  WeightArray bias_;    // the same, or empty
  ActivationQuant quant_;
  WeightArray compensated_bias_;  // with static activations: bias + offset * sum_k w
};

}  // namespace triptych::cpu
