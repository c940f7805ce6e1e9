#include "compress/paired_moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace triptych::compress {
namespace {

constexpr std::int64_t kChannels = 16, kOut = 5;

Tensor normal_matrix(std::int64_t n, std::int64_t k, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Tensor out(DType::kF32, {n, k});
  for (std::int64_t i = 0; i < n * k; ++i) out.f32()[i] = normal(rng);
  return out;
}

// What quantization does to a tower's output: a mixing of its channels, a shift, and noise that nothing
// mends.
struct Rows {
  Tensor x, y;
};
Rows make_rows(std::int64_t n, std::uint32_t seed) {
  Rows out{normal_matrix(n, kChannels, seed), normal_matrix(n, kChannels, seed + 1)};
  const Tensor mixing = normal_matrix(kChannels, kChannels, 77);
  for (std::int64_t t = 0; t < n; ++t)
    for (std::int64_t j = 0; j < kChannels; ++j) {
      float y = out.x.f32()[t * kChannels + j] + 0.05F * out.y.f32()[t * kChannels + j] + 0.2F;
      for (std::int64_t i = 0; i < kChannels; ++i)
        y += 0.1F * out.x.f32()[t * kChannels + i] * mixing.f32()[i * kChannels + j];
      out.y.f32()[t * kChannels + j] = y;
    }
  return out;
}

// Directly, row by row.
double error_of(const Tensor& w, const Tensor& changed, const std::vector<float>& shift, const Rows& rows) {
  double sum = 0;
  for (std::int64_t t = 0; t < rows.x.view().dim(0); ++t)
    for (std::int64_t n = 0; n < kOut; ++n) {
      double d = shift.empty() ? 0.0 : -static_cast<double>(shift[static_cast<std::size_t>(n)]);
      for (std::int64_t k = 0; k < kChannels; ++k)
        d += static_cast<double>(w.view().cf32()[n * kChannels + k]) *
                 static_cast<double>(rows.x.view().cf32()[t * kChannels + k]) -
             static_cast<double>(changed.view().cf32()[n * kChannels + k]) *
                 static_cast<double>(rows.y.view().cf32()[t * kChannels + k]);
      sum += d * d;
    }
  return sum / static_cast<double>(rows.x.view().dim(0));
}

TEST(PairedMoments, TheFoldMendsWhatCanBeMendedOnRowsItHasNotSeen) {
  const Rows seen = make_rows(400, 1), unseen = make_rows(200, 11);
  PairedMoments pairs(kChannels);
  pairs.add(seen.x.view(), seen.y.view(), false);
  pairs.add(unseen.x.view(), unseen.y.view(), true);
  const Tensor w = normal_matrix(kOut, kChannels, 21);
  const double before = fold_error(w.view(), w.view(), {}, pairs.held_out());
  EXPECT_NEAR(before, error_of(w, w, {}, unseen), 1e-3 * before);
  double last = before;
  for (const double alpha : {0.3, 0.6, 1.0}) {
    const ResidualFold fold = fold_residual(w.view(), pairs.fitting(), alpha, 1e-4, true);
    const double after = fold_error(w.view(), fold.weight.view(), fold.shift, pairs.held_out());
    EXPECT_NEAR(after, error_of(w, fold.weight, fold.shift, unseen), 1e-3 * before);
    EXPECT_LT(after, last) << alpha;
    last = after;
  }
  EXPECT_LT(last, 0.05 * before);
  // Without a bias the shift stays.
  const ResidualFold no_bias = fold_residual(w.view(), pairs.fitting(), 1.0, 1e-4, false);
  for (const float s : no_bias.shift) EXPECT_EQ(s, 0.0F);
  EXPECT_LT(fold_error(w.view(), no_bias.weight.view(), {}, pairs.held_out()), before);
}

TEST(PairedMoments, ADifferenceOfNothingChangesNothing) {
  const Rows rows = make_rows(50, 1);
  PairedMoments pairs(kChannels);
  pairs.add(rows.x.view(), rows.x.view(), false);
  const Tensor w = normal_matrix(kOut, kChannels, 21);
  const ResidualFold fold = fold_residual(w.view(), pairs.all(), 1.0, 1e-2, true);
  for (std::int64_t i = 0; i < kOut * kChannels; ++i)
    EXPECT_NEAR(fold.weight.view().cf32()[i], w.view().cf32()[i], 1e-5);
}

TEST(PairedMoments, ScalingChannelsIsScalingRows) {
  Rows rows = make_rows(60, 3);
  PairedMoments pairs(kChannels), scaled(kChannels);
  pairs.add(rows.x.view(), rows.y.view(), false);
  std::vector<float> by(kChannels);
  for (std::size_t i = 0; i < by.size(); ++i) by[i] = std::exp2(static_cast<float>(i % 5) - 2);
  pairs.divide_channels(by);
  for (std::int64_t i = 0; i < 60 * kChannels; ++i) {
    rows.x.f32()[i] /= by[static_cast<std::size_t>(i % kChannels)];
    rows.y.f32()[i] /= by[static_cast<std::size_t>(i % kChannels)];
  }
  scaled.add(rows.x.view(), rows.y.view(), false);
  for (std::size_t i = 0; i < pairs.fitting().xy.size(); ++i)
    EXPECT_NEAR(pairs.fitting().xy[i], scaled.fitting().xy[i], 1e-3 * (1 + std::abs(scaled.fitting().xy[i])));
}

}  // namespace
}  // namespace triptych::compress
