// y = activation(x W^T + b) + residual on the CPU: weights as views of the checkpoint, streamed or in tiles.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/runtime.h"

namespace triptych::cpu {

/// Operands as plain memory; strides in floats.
struct LinearArgs {
  std::int64_t n_rows;
  const float* x;
  std::ptrdiff_t x_stride;
  Activation function;
  const float* residual;  // may be null, may be y
  std::ptrdiff_t residual_stride;
  float* y;
  std::ptrdiff_t y_stride;
  bool lean = false;  // see kernels::EpilogueArgs
  // W stacks Wg and Wu of N / 2 rows each: y [M, N / 2] = function(x Wg^T + bg) * (x Wu^T + bu)
  bool gated = false;
  ActivationQuant x_quant = {};
  // x as int8 activations, quantized with the weight's own static parameters, and their scales.
  const std::int8_t* x_int8 = nullptr;  // [M][x_int8_stride]
  std::ptrdiff_t x_int8_stride = 0;
  const float* x_scales = nullptr;
  // y as int8 activations with these parameters instead of floats.
  ActivationQuant y_quant = {};
  std::int8_t* y_int8 = nullptr;  // [M][y_int8_stride]
  std::ptrdiff_t y_int8_stride = 0;
  std::int64_t n_y_int8 = 0;  // of a row; up to the stride zeros follow
  float* y_scales = nullptr;  // [M]: the step, NaN for rows that are not finite
  // Rows of x are normed first: by weights that multiplies_int8(), which quantize each row anyway.
  LinearInput::Norm norm = LinearInput::Norm::kNone;
  const float* norm_weight = nullptr;  // [K]
  const float* norm_bias = nullptr;    // [K], or null
  float norm_eps = 0;
};

/// The tiling plan of a product in panels of columns: which panels and rows make a piece of work; see
/// plan_panel_tiling.
struct PanelTiling {
  std::int64_t panels_per_group = 0;
  std::int64_t n_groups = 0;
  std::int64_t n_row_splits = 0;
  LoopPlan loop;
  const kernels::GemmS8Kernels* gemm_s8 = nullptr;  // that multiplies
};

/// What shapes decide of a product: made once for a step that is recorded. A weight uses what it needs.
struct ProductPlan {
  LinearAlgorithm algorithm = LinearAlgorithm::kStreamed;   // of float weights
  Int4Algorithm int4_algorithm = Int4Algorithm::kStreamed;  // of int4 weights
  std::int64_t n_panels = 0;                                // handed out, or of `step` rows of the weight
  std::int64_t n_tiles = 0;                                 // of rows
  std::int64_t step = 0;
  LoopPlan loop;
  PanelTiling tiling;
};

/// What every kind of weight of this backend can do.
class CpuWeight : public LinearWeight {
 public:
  /// Looks at shapes only, never at the operands' memory.
  virtual ProductPlan plan(const Runtime& runtime, const LinearArgs& args) const = 0;
  virtual void run(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const = 0;
  void multiply(Runtime& runtime, const LinearArgs& args) const { run(runtime, args, plan(runtime, args)); }
  /// Whether run takes LinearArgs::gated.
  virtual bool multiplies_gated() const noexcept { return false; }
};

/// Before a product that writes int8 activations: what lies beyond them is zero, and each row finite until it
/// is not.
void begin_int8_rows(const LinearArgs& args);

/// Products of columns [first, first + n) of one row become outputs: bias (or null), function, residual.
void finish_row(const Runtime& runtime, const LinearArgs& args, const float* bias, std::int64_t row,
                std::int64_t first, std::int64_t n, const float* products);

/// The same of a gated product: columns [first, first + n) of y; `bias` is of the whole stack of 2 n_half
/// rows.
void finish_gated_row(const Runtime& runtime, const LinearArgs& args, const float* bias, std::int64_t n_half,
                      std::int64_t row, std::int64_t first, std::int64_t n, const float* gate,
                      const float* up);

/// The biases of all parts as one vector; empty when there is none. Throws Error(kInvalidFile) naming the
/// tensor.
std::vector<float> stacked_bias(const LinearSpec& spec);

/// Matrices stacked along N, each read in place.
class CpuLinear final : public CpuWeight {
 public:
  struct Part {
    const std::byte* data;
    std::ptrdiff_t row_stride;  // elements
    ElementType type;
    std::int64_t first_row;  // in the stack
    std::int64_t n_rows;
    std::shared_ptr<const void> owner;
  };

  /// Throws Error(kUnsupported) for other dtypes and Error(kInvalidFile) for shapes that do not fit, naming
  /// the tensor.
  explicit CpuLinear(const LinearSpec& spec);
  /// Those of another weight's parts as words: see words_.
  CpuLinear(const CpuLinear& bf16, std::int64_t n_words);

  std::int64_t n_out() const noexcept override { return n_out_; }
  std::int64_t n_in() const noexcept override { return n_in_; }
  std::size_t owned_bytes() const noexcept override { return bias_.size() * sizeof(float); }
  std::size_t borrowed_bytes() const noexcept override { return read_bytes_; }
  std::size_t read_bytes() const noexcept override { return read_bytes_; }
  ProductPlan plan(const Runtime& runtime, const LinearArgs& args) const override;
  void run(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const override;

  const std::vector<Part>& parts() const noexcept { return parts_; }
  /// [N], or null.
  const float* bias() const noexcept { return bias_.empty() ? nullptr : bias_.data(); }

 private:
  void add_part(const WeightEntry& weight);
  void multiply_bf16(Runtime& runtime, const LinearArgs& args) const;

  std::vector<Part> parts_;
  std::vector<float> bias_;
  std::int64_t n_out_ = 0;
  std::int64_t n_in_ = 0;
  std::size_t read_bytes_ = 0;
  std::unique_ptr<CpuLinear>
      words_;  // bfloat16 matrices as words of two neighbours along k; null: odd, or other types
};

struct LinearCall : LinearArgs {
  LinearCall(const CpuLinear& w, const LinearArgs& args, const kernels::GemmKernels* tiles = nullptr)
      : LinearArgs(args), weight(w), gemm(tiles) {}
  const CpuLinear& weight;
  const kernels::GemmKernels* gemm;  // of linear_many_rows; null: the runtime's
};

/// The weight is streamed once (from memory; up to max_vectors rows of kernels/gemv also from the caches).
/// Made for few rows; more are taken in blocks.
void linear_few_rows(Runtime& runtime, const LinearCall& call);
void linear_few_rows(Runtime& runtime, const LinearCall& call, const ProductPlan& plan);
/// Any number of rows, in tiles.
void linear_many_rows(Runtime& runtime, const LinearCall& call);

}  // namespace triptych::cpu
