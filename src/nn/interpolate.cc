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

}  // namespace triptych
