// y = activation(x W^T + b) + residual with int8 weights in groups, or nf4, and 8-bit activations: the tiles
// of kernels/gemm_s8 over one group after another, each with its own scales, summed in float. Simple rather
// than fast: nf4 becomes 8-bit panels anew in every call.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cpu/linear_quantized.h"
#include "backend/cpu/packed_arrays.h"
#include "backend/cpu/runtime.h"
#include "tensor/quant_codec.h"

namespace triptych::cpu {

/// Matrices stacked along N, in panels of 64 output channels.
class CpuLinearGroups final : public QuantizedLinear {
 public:
  /// Borrows a packed linear, takes codes of that format, or quantizes: int8 in groups, or nf4, with any type
  /// of scales; groups a multiple of 8. nf4's levels are rounded to 1/127: 30 dB below the format's own
  /// error. Throws Error(kUnsupported) for other formats, Error(kInvalidFile) for values that are not finite,
  /// naming the tensor.
  CpuLinearGroups(Runtime& runtime, const LinearSpec& spec);

  std::int64_t n_out() const noexcept override { return n_out_; }
  std::int64_t n_in() const noexcept override { return n_in_; }
  std::size_t owned_bytes() const noexcept override;
  std::size_t borrowed_bytes() const noexcept override { return read_bytes() - owned_bytes(); }
  std::size_t read_bytes() const noexcept override {
    return panels_.size_bytes() + group_scales_.size_bytes() + bias_.size_bytes();
  }
  std::vector<PackedArray> packed() const override;
  ProductPlan plan(const Runtime& runtime, const LinearArgs& args) const override;
  void run(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const override;
  void load_column(std::int64_t k, std::int64_t first, std::int64_t n, float* out) const override;

 private:
  std::int64_t panel_bytes() const noexcept;
  void quantize_panel(const Runtime& runtime, const LinearSpec& spec, std::int64_t index);
  /// Codes and scales of row `row` of `matrix` into row `r` of a panel.
  void pack_row(const LinearSpec& spec, const QuantizedMatrix& matrix, std::int64_t row, std::int64_t index,
                std::int64_t r);
  /// The panel as 8-bit weights; `scratch` holds one.
  const std::uint8_t* s8_panel(std::int64_t index, std::uint8_t* scratch) const;

  bool is_nf4_ = false;
  std::int64_t n_out_ = 0, n_in_ = 0, group_ = 0, n_groups_ = 0;
  WeightArray panels_;        // [panels][panel_bytes]
  WeightArray group_scales_;  // [panels][n_groups][64]
  WeightArray bias_;          // [N rounded up to 64] or empty
};

}  // namespace triptych::cpu
