#include "compress/paired_moments.h"

#include <algorithm>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "base/error.h"

namespace triptych::compress {
namespace {

using MatrixF = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixD = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using VectorD = Eigen::VectorXd;
using Rows = Eigen::Map<const MatrixF, Eigen::Unaligned, Eigen::OuterStride<>>;

Rows map_rows(const TensorView& x) {
  const auto stride = x.dim(0) > 1 ? x.row(1).cf32() - x.row(0).cf32() : x.dim(1);
  return {x.cf32(), x.dim(0), x.dim(1), Eigen::OuterStride<>(stride)};
}

MatrixD to_matrix(const std::vector<float>& values, Eigen::Index k) {
  return Eigen::Map<const MatrixF>(values.data(), k, k).cast<double>();
}

VectorD mean_of(const std::vector<double>& sums, double n) {
  return Eigen::Map<const VectorD>(sums.data(), static_cast<Eigen::Index>(sums.size())) / n;
}

}  // namespace

void PairSums::resize(std::int64_t k) {
  const auto width = static_cast<std::size_t>(k);
  x.resize(width);
  y.resize(width);
  for (std::vector<float>* sums : {&xx, &xy, &yy}) sums->resize(width * width);
}

void PairSums::add(const PairSums& other) {
  if (other.n == 0) return;
  resize(static_cast<std::int64_t>(other.x.size()));
  n += other.n;
  const auto sum = [](auto& to, const auto& from) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] += from[i];
  };
  sum(x, other.x);
  sum(y, other.y);
  sum(xx, other.xx);
  sum(xy, other.xy);
  sum(yy, other.yy);
}

void PairedMoments::add(const TensorView& x, const TensorView& y, bool is_held_out) {
  TRIPTYCH_CHECK(x.shape() == y.shape() && x.dim(1) == k_, "inputs {} and {} of a linear of {} channels",
                 to_string(x.shape()), to_string(y.shape()), k_);
  PairSums& sums = is_held_out ? held_out_ : fitting_;
  sums.resize(k_);
  const Rows a = map_rows(x), b = map_rows(y);
  const auto add_product = [&](std::vector<float>& to, const Rows& left, const Rows& right) {
    Eigen::Map<MatrixF>(to.data(), k_, k_).noalias() += left.transpose() * right;
  };
  add_product(sums.xx, a, a);
  add_product(sums.xy, a, b);
  add_product(sums.yy, b, b);
  Eigen::Map<VectorD>(sums.x.data(), k_) += a.cast<double>().colwise().sum().transpose();
  Eigen::Map<VectorD>(sums.y.data(), k_) += b.cast<double>().colwise().sum().transpose();
  sums.n += static_cast<double>(x.dim(0));
}

void PairedMoments::divide_channels(std::span<const float> scales) {
  for (PairSums* sums : {&fitting_, &held_out_}) {
    if (sums->n == 0) continue;
    const std::size_t k = scales.size();
    for (std::size_t i = 0; i < k; ++i) {
      sums->x[i] /= static_cast<double>(scales[i]);
      sums->y[i] /= static_cast<double>(scales[i]);
      for (std::size_t j = 0; j < k; ++j)
        for (std::vector<float>* products : {&sums->xx, &sums->xy, &sums->yy})
          (*products)[i * k + j] /= scales[i] * scales[j];
    }
  }
}

PairSums PairedMoments::all() const {
  PairSums out = fitting_;
  out.add(held_out_);
  return out;
}

ResidualFold fold_residual(const TensorView& weight, const PairSums& sums, double alpha, double lambda,
                           bool has_bias) {
  const auto k = static_cast<Eigen::Index>(weight.dim(1));
  TRIPTYCH_CHECK(sums.n > 0 && static_cast<Eigen::Index>(sums.x.size()) == k);
  const MatrixD w = map_rows(weight).cast<double>();
  MatrixD xy = to_matrix(sums.xy, k) / sums.n;
  MatrixD yy = to_matrix(sums.yy, k) / sums.n;
  const VectorD x = mean_of(sums.x, sums.n), y = mean_of(sums.y, sums.n);
  if (has_bias) {
    xy -= x * y.transpose();
    yy -= y * y.transpose();
  }
  double mean_diagonal = yy.diagonal().mean();
  if (!(mean_diagonal > 0)) mean_diagonal = 1;
  MatrixD damped = yy;
  damped.diagonal().array() += std::max(lambda, 1e-9) * mean_diagonal;
  const Eigen::LLT<MatrixD> factored(damped);
  if (factored.info() != Eigen::Success)
    fail(ErrorCode::kInvalidArgument, "the moments of a projector's inputs cannot be factored");
  // The matrix from the right: (A^-1 B^T)^T, A symmetric.
  const MatrixD step = factored.solve((w * (xy - yy)).transpose()).transpose();
  const MatrixD changed = w + alpha * step;
  ResidualFold out{.weight = Tensor(DType::kF32, {weight.dim(0), weight.dim(1)}),
                   .shift = std::vector<float>(static_cast<std::size_t>(weight.dim(0)))};
  Eigen::Map<MatrixF>(out.weight.f32(), weight.dim(0), k) = changed.cast<float>();
  if (has_bias) {
    const VectorD shift = w * x - changed * y;
    for (Eigen::Index i = 0; i < shift.size(); ++i)
      out.shift[static_cast<std::size_t>(i)] = static_cast<float>(shift(i));
  }
  return out;
}

double fold_error(const TensorView& weight, const TensorView& changed, std::span<const float> shift,
                  const PairSums& sums) {
  const auto k = static_cast<Eigen::Index>(weight.dim(1));
  const MatrixD a = map_rows(weight).cast<double>(), b = map_rows(changed).cast<double>();
  const MatrixD xx = to_matrix(sums.xx, k) / sums.n, xy = to_matrix(sums.xy, k) / sums.n,
                yy = to_matrix(sums.yy, k) / sums.n;
  double out =
      (a * xx).cwiseProduct(a).sum() - 2 * (a * xy).cwiseProduct(b).sum() + (b * yy).cwiseProduct(b).sum();
  const VectorD mean = a * mean_of(sums.x, sums.n) - b * mean_of(sums.y, sums.n);
  for (std::size_t i = 0; i < shift.size(); ++i) {
    const auto s = static_cast<double>(shift[i]);
    out += s * s - 2 * s * mean(static_cast<Eigen::Index>(i));
  }
  return std::max(out, 0.0);
}

}  // namespace triptych::compress
