// y = activation(x W^T + b) + residual with weights of 4 bits in groups and 8-bit activations. Few rows
// stream the weight as it is stored; many rows turn each panel into 8-bit weights first, once a call, and
// multiply those (kernels/gemm_s4).
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/runtime.h"

namespace triptych::cpu {

/// Matrices stacked along N, in panels of 64 output channels.
class CpuLinearS4 final : public CpuWeight {
 public:
  /// Quantizes spec.parts to *spec.format: int4 with float16 scales, groups a multiple of 8 or whole rows.
  /// With `exact_groups` products of many rows, too, use the groups' own scales: slower, without the rounding
  /// to 8 bits. Throws Error(kUnsupported) for other formats, Error(kInvalidFile) for values that are not
  /// finite, naming the tensor.
  CpuLinearS4(Runtime& runtime, const LinearSpec& spec, bool exact_groups);

  std::int64_t n_out() const noexcept override { return n_out_; }
  std::int64_t n_in() const noexcept override { return layout_.k; }
  std::size_t owned_bytes() const noexcept override;
  std::size_t read_bytes() const noexcept override { return panels_.size_bytes(); }
  bool multiplies_int8() const noexcept override { return true; }
  void multiply(Runtime& runtime, const LinearArgs& args) const override;
  bool multiplies_gated() const noexcept override { return n_out_ % 128 == 0; }  // halves of whole panels

 private:
  void load_column(std::int64_t k, float* out) const;
  void quantize_panel(const LinearSpec& spec, std::int64_t index);
  void multiply_streamed(Runtime& runtime, const LinearArgs& args) const;
  void multiply_requantized(Runtime& runtime, const LinearArgs& args) const;
  const float* bias() const noexcept { return bias_.empty() ? nullptr : bias_.data(); }
  const std::uint8_t* panel(std::int64_t index) const noexcept {
    return reinterpret_cast<const std::uint8_t*>(panels_.data()) + index * layout_.panel_bytes();
  }

  std::int64_t n_out_ = 0;
  kernels::S4Layout layout_{};
  bool exact_groups_;
  Buffer panels_;
  std::vector<float> column_scales_;  // [N rounded up to 64] of the 8-bit panels
  std::vector<float> bias_;           // [N] or empty
};

}  // namespace triptych::cpu
