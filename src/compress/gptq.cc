#include "compress/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <Eigen/Cholesky>

#include "base/error.h"

namespace triptych::compress {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// M of H = M D M^T for columns in `order`, unit upper triangular, float32 [K, K]. The Cholesky factor of H
// with its rows and columns reversed, reversed again.
std::vector<float> feedback_matrix(const Gram& h, const std::vector<std::int64_t>& order, double& damping) {
  const auto k = static_cast<Eigen::Index>(order.size());
  double mean = 0;
  for (std::int64_t i = 0; i < h.size(); ++i) mean += static_cast<double>(h.at(i, i));
  mean /= static_cast<double>(std::max<std::int64_t>(h.size(), 1));
  if (!std::isfinite(mean)) fail(ErrorCode::kInvalidArgument, "gptq: the second moments are not finite");
  if (!(mean > 0)) mean = 1;  // nothing was seen
  for (;; damping *= 10) {
    Matrix reversed(k, k);
    for (Eigen::Index i = 0; i < k; ++i)
      for (Eigen::Index j = 0; j <= i; ++j)
        reversed(i, j) = static_cast<double>(h.at(order[static_cast<std::size_t>(k - 1 - i)],
                                                  order[static_cast<std::size_t>(k - 1 - j)])) +
                         (i == j ? damping * mean : 0.0);
    Eigen::LLT<Eigen::Ref<Matrix>, Eigen::Lower> factored(reversed);
    if (factored.info() != Eigen::Success) {
      if (damping > 1e6) fail(ErrorCode::kInvalidArgument, "gptq: the second moments cannot be factored");
      continue;
    }
    std::vector<float> m(static_cast<std::size_t>(k * k));
    for (Eigen::Index i = 0; i < k; ++i)
      for (Eigen::Index j = i; j < k; ++j)
        m[static_cast<std::size_t>(i * k + j)] =
            static_cast<float>(reversed(k - 1 - i, k - 1 - j) / reversed(k - 1 - j, k - 1 - j));
    return m;
  }
}

}  // namespace

QuantizedMatrix gptq(const TensorView& w, const Gram& h, const QuantFormat& format,
                     const GptqOptions& options, ThreadPool& pool, GptqReport* report) {
  TRIPTYCH_CHECK(w.rank() == 2 && w.dim(1) == h.size(), "gptq: a matrix {} and moments of {}",
                 to_string(w.shape()), h.size());
  if (format.two_level) fail(ErrorCode::kInvalidArgument, "gptq: {} has two levels", format.to_string());
  const auto k = static_cast<std::size_t>(h.size());
  std::vector<float> importance(k);
  for (std::size_t i = 0; i < k; ++i)
    importance[i] = h.at(static_cast<std::int64_t>(i), static_cast<std::int64_t>(i));
  if (std::all_of(importance.begin(), importance.end(), [](float x) { return x == 0; }))
    std::fill(importance.begin(), importance.end(), 1.0F);
  QuantizedMatrix out = quantize(w, format, {.clip_to = options.clip_to, .importance = importance});

  std::vector<std::int64_t> order(k);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return importance[static_cast<std::size_t>(a)] > importance[static_cast<std::size_t>(b)];
  });
  double damping = options.damping;
  const std::vector<float> m = feedback_matrix(h, order, damping);
  if (report != nullptr) report->damping = damping;

  // Row j of m is read once for as many rows of w.
  constexpr std::size_t kRows = 16;
  const auto n = static_cast<std::size_t>(w.dim(0));
  pool.parallel_for((n + kRows - 1) / kRows, 1, [&](std::size_t begin, std::size_t end, int) {
    std::vector<float> carried(kRows * k);
    for (std::size_t block = begin; block < end; ++block) {
      const std::size_t first = block * kRows;
      const std::size_t n_rows = std::min(kRows, n - first);
      std::fill(carried.begin(), carried.end(), 0.0F);
      for (std::size_t j = 0; j < k; ++j) {
        const float* feedback = m.data() + j * k;
        for (std::size_t r = 0; r < n_rows; ++r) {
          const auto row = static_cast<std::int64_t>(first + r);
          float* carry = carried.data() + r * k;
          const float value = w.row(row).cf32()[order[j]];
          const float error = value - out.set_nearest(row, order[j], value + carry[j]);
          for (std::size_t i = j + 1; i < k; ++i) carry[i] += error * feedback[i];
        }
      }
    }
  });
  return out;
}

double output_error(const TensorView& w, const TensorView& q, const Gram& h, ThreadPool& pool) {
  const auto k = static_cast<std::size_t>(h.size());
  std::vector<double> errors(static_cast<std::size_t>(w.dim(0)));
  pool.parallel_for(errors.size(), 4, [&](std::size_t begin, std::size_t end, int) {
    std::vector<float> d(k);
    for (std::size_t row = begin; row < end; ++row) {
      const float* a = w.row(static_cast<std::int64_t>(row)).cf32();
      const float* b = q.row(static_cast<std::int64_t>(row)).cf32();
      for (std::size_t i = 0; i < k; ++i) d[i] = a[i] - b[i];
      double sum = 0;
      for (std::size_t i = 0; i < k; ++i) {
        if (d[i] == 0) continue;
        double right = 0;
        for (std::size_t j = i + 1; j < k; ++j)
          right += static_cast<double>(h.at(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j))) *
                   static_cast<double>(d[j]);
        sum += static_cast<double>(d[i]) *
               (2 * right +
                static_cast<double>(h.at(static_cast<std::int64_t>(i), static_cast<std::int64_t>(i))) *
                    static_cast<double>(d[i]));
      }
      errors[row] = std::max(sum, 0.0);
    }
  });
  return std::accumulate(errors.begin(), errors.end(), 0.0);
}

}  // namespace triptych::compress
