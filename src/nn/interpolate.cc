#include "nn/interpolate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace triptych {
namespace {

struct Taps {
  std::array<int, 4> index;
  std::array<float, 4> weight;
};

Taps taps_of(int destination, int from, int to) {
  constexpr float kA = -0.75F;
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  const float source = (static_cast<float>(destination) + 0.5F) * scale - 0.5F;
  const float floor = std::floor(source);
  const float t = source - floor;
  const auto near = [&](float x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };         // |x| <= 1
  const auto far = [&](float x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };  // 1 < |x| < 2
  Taps out;
  for (int k = 0; k < 4; ++k)
    out.index[static_cast<std::size_t>(k)] = std::clamp(static_cast<int>(floor) + k - 1, 0, from - 1);
  out.weight = {far(t + 1), near(t), near(1 - t), far(2 - t)};
  return out;
}

}  // namespace

Tensor interpolate_bicubic_grid(const Tensor& table, int from, int to) {
  const std::int64_t d = table.shape().dim(1);
  TRIPTYCH_CHECK(table.shape().dim(0) == static_cast<std::int64_t>(from) * from,
                 "[interpolate] table {} is no {}x{} grid", to_string(table.shape()), from, from);
  if (from == to) return Tensor::copy_of(table.view());
  Tensor out = Tensor::zeros(DType::kF32, {static_cast<std::int64_t>(to) * to, d});
  for (int y = 0; y < to; ++y) {
    const Taps ty = taps_of(y, from, to);
    for (int x = 0; x < to; ++x) {
      const Taps tx = taps_of(x, from, to);
      float* row = out.f32() + (static_cast<std::int64_t>(y) * to + x) * d;
      for (std::size_t j = 0; j < 4; ++j)
        for (std::size_t i = 0; i < 4; ++i) {
          const float w = ty.weight[j] * tx.weight[i];
          const float* source =
              table.f32() + (static_cast<std::int64_t>(ty.index[j]) * from + tx.index[i]) * d;
          for (std::int64_t c = 0; c < d; ++c) row[c] += w * source[c];
        }
    }
  }
  return out;
}

BilinearTap bilinear_tap(std::int64_t at, std::int64_t from, std::int64_t to) {
  // In float32, as the reference computes it.
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  const float source = std::max(0.0F, scale * (static_cast<float>(at) + 0.5F) - 0.5F);
  const std::int64_t lower = std::min(static_cast<std::int64_t>(source), from - 1);
  return {.lower = lower,
          .upper = std::min(lower + 1, from - 1),
          .upper_weight = std::clamp(source - static_cast<float>(lower), 0.0F, 1.0F)};
}

RowMixture::RowMixture(Arena& arena, std::int64_t n) {
  for (auto& rows : rows_) rows = arena.make_span<std::int32_t>(static_cast<std::size_t>(n));
  for (auto& weights : weights_) weights = arena.make_span<float>(static_cast<std::size_t>(n));
}

void RowMixture::add(const std::array<std::int64_t, 4>& rows, const std::array<float, 4>& weights) {
  for (std::size_t k = 0; k < 4; ++k) {
    rows_[k][n_] = static_cast<std::int32_t>(rows[k]);
    weights_[k][n_] = weights[k];
  }
  ++n_;
}

void RowMixture::write(ExecContext& cx, const TensorView& table, TensorView out) const {
  TRIPTYCH_CHECK(n_ == rows_[0].size() && out.dim(0) == static_cast<std::int64_t>(n_),
                 "[row_mixture] {} of {} rows for {}", n_, rows_[0].size(), to_string(out.shape()));
  for (std::size_t k = 0; k < (is_mixed_ ? 4U : 1U); ++k) {
    const ArenaScope scratch(cx.arena());
    TensorView rows = cx.gather_rows(table, rows_[k]);
    if (is_mixed_) cx.scale_rows(rows, weights_[k]);
    if (k == 0) {
      cx.copy(rows, out);
    } else {
      cx.add_inplace(out, rows);
    }
  }
}

}  // namespace triptych
