#include "engine/token_selection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::size_t kLanes = 16;  // sums side by side, for vector registers of any width

float dot(std::span<const float> a, std::span<const float> b) {
  std::array<float, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  float out = 0;
  for (; i < a.size(); ++i) out += a[i] * b[i];
  for (const float sum : sums) out += sum;
  return out;
}

// Rows one after another.
class Rows {
 public:
  Rows(std::size_t n, std::size_t width) : width_(width), values_(n * width) {}
  std::span<float> operator[](std::size_t i) { return std::span(values_).subspan(i * width_, width_); }

 private:
  std::size_t width_;
  std::vector<float> values_;
};

Rows less_mean(const TensorView& x) {
  const auto n = static_cast<std::size_t>(x.dim(0));
  const auto width = static_cast<std::size_t>(x.dim(1));
  Rows out(n, width);
  std::vector<double> mean(width, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    const float* row = x.row(static_cast<std::int64_t>(i)).cf32();
    for (std::size_t d = 0; d < width; ++d) mean[d] += static_cast<double>(row[d]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const float* row = x.row(static_cast<std::int64_t>(i)).cf32();
    for (std::size_t d = 0; d < width; ++d)
      out[i][d] = row[d] - static_cast<float>(mean[d] / static_cast<double>(n));
  }
  return out;
}

}  // namespace

std::vector<std::int32_t> select_highest(std::span<const double> scores, std::int64_t k) {
  TRIPTYCH_CHECK(k >= 0 && k <= static_cast<std::int64_t>(scores.size()), "[token_selection] {} of {} tokens",
                 k, scores.size());
  std::vector<std::int32_t> out(scores.size());
  std::iota(out.begin(), out.end(), 0);
  std::stable_sort(out.begin(), out.end(), [&](std::int32_t a, std::int32_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  out.resize(static_cast<std::size_t>(k));
  std::sort(out.begin(), out.end());
  return out;
}

// The Cholesky factor of the rows' inner products and the noise, the row of the largest remaining diagonal
// first.
std::vector<std::int32_t> select_diverse(const TensorView& x, std::int64_t k) {
  const std::int64_t n_rows = x.dim(0);
  TRIPTYCH_CHECK(k >= 0 && k <= n_rows, "[token_selection] {} of {} rows", k, n_rows);
  const auto n = static_cast<std::size_t>(n_rows);
  const auto n_wanted = static_cast<std::size_t>(k);
  Rows rows = less_mean(x);
  Rows factor(n, n_wanted);        // of each row, its coordinates on what was chosen
  std::vector<float> variance(n);  // of each row, what is left of it, noise included; of those chosen -1
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float own = dot(rows[i], rows[i]);
    variance[i] = std::isfinite(own) ? own : 0.0F;
    sum += static_cast<double>(variance[i]);
  }
  const float noise = std::max(static_cast<float>(sum / static_cast<double>(n)), 1e-30F);
  for (float& v : variance) v += noise;
  std::vector<std::int32_t> out;
  while (out.size() < n_wanted) {
    const auto next =
        static_cast<std::size_t>(std::max_element(variance.begin(), variance.end()) - variance.begin());
    const float deviation = std::sqrt(variance[next]);
    const std::span<const float> of_next = factor[next].first(out.size());
    variance[next] = -1;
    for (std::size_t i = 0; i < n; ++i) {
      if (variance[i] < 0) continue;
      const float shared = (dot(rows[next], rows[i]) - dot(of_next, factor[i].first(out.size()))) / deviation;
      factor[i][out.size()] = std::isfinite(shared) ? shared : 0.0F;
      // The noise is a row's own, so that what is left is never less; rounding may say otherwise.
      variance[i] = std::max(noise, variance[i] - factor[i][out.size()] * factor[i][out.size()]);
    }
    out.push_back(static_cast<std::int32_t>(next));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace triptych
