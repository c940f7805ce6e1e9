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

// The Cholesky factor of the rows' inner products, the row of the largest remaining diagonal first.
std::vector<std::int32_t> select_diverse(const TensorView& x, std::int64_t k) {
  const std::int64_t n_rows = x.dim(0);
  TRIPTYCH_CHECK(k >= 0 && k <= n_rows, "[token_selection] {} of {} rows", k, n_rows);
  const auto n = static_cast<std::size_t>(n_rows);
  const auto n_wanted = static_cast<std::size_t>(k);
  Rows rows = less_mean(x);
  Rows factor(n, n_wanted);      // of each row, its coordinates on what was chosen since the last beginning
  std::vector<float> square(n);  // of what is left of each row; of those chosen -1
  std::vector<float> whole(n);
  for (std::size_t i = 0; i < n; ++i) {
    const float own = dot(rows[i], rows[i]);
    square[i] = whole[i] = std::isfinite(own) ? own : 0.0F;
  }
  constexpr float kSpanned = 1e-5F;  // of the largest square, below which rounding decides
  const float least = kSpanned * (n > 0 ? *std::max_element(whole.begin(), whole.end()) : 0.0F);
  std::vector<std::int32_t> out;
  std::size_t n_spanning = 0;
  bool is_fresh = true;
  while (out.size() < n_wanted) {
    const auto next =
        static_cast<std::size_t>(std::max_element(square.begin(), square.end()) - square.begin());
    if (square[next] <= least && !is_fresh) {
      for (std::size_t i = 0; i < n; ++i)
        if (square[i] >= 0) square[i] = whole[i];
      n_spanning = 0;
      is_fresh = true;
      continue;
    }
    is_fresh = false;
    out.push_back(static_cast<std::int32_t>(next));
    const float length = std::sqrt(std::max(square[next], 0.0F));
    square[next] = -1;
    if (length * length <= least) {  // all that is left is the mean itself: any will do, the first ones do
      is_fresh = true;
      continue;
    }
    const std::span<const float> of_next = factor[next].first(n_spanning);
    for (std::size_t i = 0; i < n; ++i) {
      if (square[i] < 0) continue;
      const float coordinate =
          (dot(rows[next], rows[i]) - dot(of_next, factor[i].first(n_spanning))) / length;
      factor[i][n_spanning] = coordinate;
      square[i] = std::max(0.0F, square[i] - coordinate * coordinate);
    }
    ++n_spanning;
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace triptych
