// Quantizing a matrix and back, one value at a time: slow, plain, and the oracle of every kernel that reads
// the layouts of quant_format.h. Values are rounded to nearest, ties to even, against the scale as it is
// stored.
#pragma once

#include <span>

#include "tensor/quant_format.h"
#include "tensor/tensor.h"

namespace triptych {

struct QuantizedMatrix {
  QuantFormat format;
  std::int64_t n = 0, k = 0;
  Buffer codes;       // [N, row_code_bytes]
  Buffer scales;      // [N, G] of scale_dtype; two levels: [N, G] bytes
  Buffer zeros;       // [N, row_zero_bytes]
  Buffer row_scales;  // two levels: [N] of scale_dtype

  std::size_t size_bytes() const noexcept {
    return codes.size_bytes() + scales.size_bytes() + zeros.size_bytes() + row_scales.size_bytes();
  }
  /// The code as an integer (int4: without the 8 that is stored; f8: the bits), scale and zero point that
  /// apply to w[row, col].
  int code(std::int64_t row, std::int64_t col) const noexcept;
  float scale(std::int64_t row, std::int64_t col) const noexcept;
  int zero(std::int64_t row, std::int64_t col) const noexcept;
  /// Two levels: the two factors of scale().
  float row_scale(std::int64_t row) const noexcept;
  int group_scale(std::int64_t row, std::int64_t col) const noexcept;
  float value(std::int64_t row, std::int64_t col) const noexcept;
  /// Replaces a code by the one whose value is nearest to `w`; scale and zero point stay. Returns that value.
  /// One level only.
  float set_nearest(std::int64_t row, std::int64_t col, float w) noexcept;
  /// The value if the column belonged to group `group`.
  float value_in_group(std::int64_t row, std::int64_t col, std::int64_t group) const noexcept;
};

struct QuantizeOptions {
  /// Tries ranges from the whole down to this share of it, in steps of 0.01, and keeps the one with the least
  /// squared error. 1: no search.
  float clip_to = 1.0F;
  /// [K] weights of that error (mean squares of the inputs); empty: all alike.
  std::span<const float> importance = {};
};

/// `w` is [N, K], float32. Throws Error(kInvalidArgument) for a format that does not exist, or when a value
/// is not finite or its scale does not fit scale_dtype; the message names row and column.
QuantizedMatrix quantize(const TensorView& w, const QuantFormat& format, const QuantizeOptions& options = {});

/// [N, K] float32.
Tensor dequantize(const QuantizedMatrix& matrix);

/// 10 log10(sum w^2 / sum (w - approximation)^2); infinity when equal. Shapes must be equal, both float32.
double sqnr_db(const TensorView& w, const TensorView& approximation);

}  // namespace triptych
