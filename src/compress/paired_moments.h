// Second moments of the inputs of a linear in the original model, x, beside those of the compressed one, y,
// for the same rows: what a change of the linear can make up for. Samples are split, so that what is fitted
// on some can be judged on others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace triptych::compress {

/// Sums over rows.
struct PairSums {
  double n = 0;
  std::vector<double> x, y;       // [K]
  std::vector<float> xx, xy, yy;  // [K, K], x across the rows of xy
  void resize(std::int64_t k);
  void add(const PairSums& other);
};

class PairedMoments {
 public:
  explicit PairedMoments(std::int64_t k) : k_(k) {}

  /// Rows [T, K] of a sample in both. `is_held_out`: they are for judging.
  void add(const TensorView& x, const TensorView& y, bool is_held_out);
  /// Of inputs whose channel i is divided by scales[i], in both.
  void divide_channels(std::span<const float> scales);

  std::int64_t size() const noexcept { return k_; }
  const PairSums& fitting() const noexcept { return fitting_; }
  const PairSums& held_out() const noexcept { return held_out_; }
  PairSums all() const;

 private:
  std::int64_t k_;
  PairSums fitting_, held_out_;
};

/// W' [N, K] and a shift of the bias [N] with which a linear gives of y what W gave of x: least squares,
/// ridge `lambda` times the mean of the diagonal, and the share `alpha` of the whole way taken:
///   W' = W + alpha W Cov(x - y, y) (Cov(y, y) + lambda mean(diag) I)^-1,   shift = W mean(x) - W' mean(y).
/// Without `has_bias` the moments are taken about 0 and the shift is 0.
struct ResidualFold {
  Tensor weight;
  std::vector<float> shift;
};
ResidualFold fold_residual(const TensorView& weight, const PairSums& sums, double alpha, double lambda,
                           bool has_bias);

/// Mean of |W x - W' y - shift|^2 over the rows of `sums`.
double fold_error(const TensorView& weight, const TensorView& changed, std::span<const float> shift,
                  const PairSums& sums);

}  // namespace triptych::compress
