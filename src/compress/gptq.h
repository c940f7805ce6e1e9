// Rounding with feedback: the error of each column is made up for by the columns that are rounded later.
// Frantar et al., "GPTQ" (2023), in the form of Chee et al., "QuIP" (2023), section 4 (LDLQ): with H = sum x
// x^T = M D M^T, M unit upper triangular in the order of rounding, the squared error of the output is a sum
// of terms D_i (w_i - q_i + sum_{j < i} (w_j - q_j) M_ji)^2, so that q_i rounds w_i + sum_{j < i} (w_j - q_j)
// M_ji.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "compress/moments.h"
#include "tensor/quant_codec.h"

namespace triptych::compress {

struct GptqOptions {
  /// Added to the diagonal of H, as a share of its mean; raised tenfold until H can be factored.
  double damping = 0.01;
  /// As in QuantizeOptions: scales are found before, with mean squares of the inputs as weights.
  float clip_to = 1.0F;
};

struct GptqReport {
  double damping = 0;  // that was needed
};

/// The matrix w [N, K] float32 in `format`. Columns of large inputs are rounded first; groups and scales stay
/// those of neighbouring columns. Throws Error(kInvalidArgument) for a format of two levels, and when H is
/// not finite.
QuantizedMatrix gptq(const TensorView& w, const Gram& h, const QuantFormat& format,
                     const GptqOptions& options, ThreadPool& pool, GptqReport* report = nullptr);

/// sum over rows of (w - q) H (w - q)^T: the squared error of the outputs, summed over the calibration's
/// rows.
double output_error(const TensorView& w, const TensorView& q, const Gram& h, ThreadPool& pool);

}  // namespace triptych::compress
