// Rows of x as int8 activations, for products with weights of 8 and of 4 bits.
#pragma once

#include <cstdint>

#include "backend/cpu/linear.h"
#include "backend/cpu/runtime.h"

namespace triptych::cpu {

class QuantizedLinear;

/// Elements of x that stay floats: a channel that is far larger than the rest of its row would take all 127
/// levels (Dettmers et al., "LLM.int8()", 2022; there by columns and a fixed limit). At most kRowOutliers a
/// row. Which they are, and the bits of their products, depends on the row alone.
struct Outliers {
  static constexpr int kRowOutliers = 4;
  /// Columns of the weight that are made floats once a call; those of further channels are read anew for
  /// every row. Speed only: outliers of real models share a few channels.
  static constexpr int kCachedColumns = 64;
  /// Largest magnitude of a row, in units of the root mean square of the rest, that is still quantized with
  /// the others.
  static constexpr float kLimit = 16;

  struct Element {
    std::int32_t channel;        // of x; -1: none from here on
    std::int32_t cached_column;  // index in `columns`; -1: not among them
    float x;
  };
  const Element* elements = nullptr;  // [M][kRowOutliers]; null: no row has any
  const float* columns = nullptr;     // [n][column_stride] of the weight, as floats
  std::int64_t column_stride = 0;
  const QuantizedLinear* weight = nullptr;
};

/// Rows of x as bytes, in the runtime's shared scratch until its next use. For kernels of tiles in tile order
/// (kernels/gemm_s8): M is then rounded up to 16, and row i of a block of 16 begins at q + i * stride.
struct QuantizedRows {
  const std::int8_t* q;      // [M][stride], zeros from K on
  std::int64_t stride;       // K rounded up to 8, in tile order to whole steps
  float* scales;             // [M]
  std::int32_t* sums;        // [M] of q
  std::int32_t* group_sums;  // [M][groups] of q, if they were asked for
  Outliers outliers;
};
/// The int8 activations of `args`, with their sums. With tile_quads they are copied to tile order.
QuantizedRows int8_rows_of(Runtime& runtime, const LinearArgs& args, std::int64_t k,
                           std::int64_t tile_quads = 0);
/// Quantizes x [M, K] of `args` by rows (kernels/gemm_s8), or with args.x_quant, for a product with `weight`.
/// Sums by groups of `group` elements (a multiple of 8, or K or more) are made unless it is zero. Columns of
/// the weight are read for outliers only, into the runtime's second scratch. tile_quads: not 0 for a kernel
/// of tiles, the quads that it multiplies (K / 4 rounded up, or more); then without groups.
QuantizedRows quantize_rows(Runtime& runtime, const LinearArgs& args, const QuantizedLinear& weight,
                            std::int64_t group = 0, std::int64_t tile_quads = 0);

/// products [n] of row `row` and the weight's rows from `first` (a multiple of 64) on: what its outliers add.
void add_outliers(const QuantizedRows& rows, std::int64_t row, std::int64_t first, std::int64_t n,
                  float* products);

}  // namespace triptych::cpu
