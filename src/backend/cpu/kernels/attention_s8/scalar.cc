#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "backend/cpu/kernels/attention_s8/attention_s8.h"

namespace triptych::kernels {
namespace {

void pack_keys(const S8PackKeysArgs& t) {
  const int quads = (t.head_dim + 3) / 4;
  std::fill(t.panel, t.panel + quads * 256, std::uint8_t{128});
  for (int j = 0; j < t.n_keys; ++j) {
    const auto* row = static_cast<const std::int8_t*>(t.rows[j]);
    for (int d = 0; d < t.head_dim; ++d)
      t.panel[d / 4 * 256 + j * 4 + d % 4] = static_cast<std::uint8_t>(row[d] + 128);
  }
}

void pack_values(const S8PackValuesArgs& t) {
  std::fill(t.panel, t.panel + (t.n_keys + 3) / 4 * 256, std::int8_t{0});
  const int n_columns = std::min(64, t.head_dim - t.column);
  for (int j = 0; j < t.n_keys; ++j)
    for (int c = 0; c < n_columns; ++c)
      t.panel[j / 4 * 256 + c * 4 + j % 4] = static_cast<const std::int8_t*>(t.rows[j])[t.column + c];
}

void soften(const S8SoftenArgs& t) {
  float top = *t.top;
  for (int j = 0; j < t.n_visible; ++j) top = std::fmax(top, t.scores[j]);
  const float shift = std::isinf(top) && top < 0 ? 0.0F : top;
  *t.rescale = std::exp(*t.top - shift);
  double sum = 0;
  float largest = 0;
  bool is_nan = false;
  for (int j = 0; j < t.n; ++j) {
    const float p = j < t.n_visible ? std::exp(t.scores[j] - shift) : 0.0F;
    sum += static_cast<double>(p);
    t.scores[j] = j < t.n_visible ? p * t.value_scale[j] : 0.0F;
    largest = std::fmax(largest, t.scores[j]);
    is_nan = is_nan || std::isnan(t.scores[j]);
  }
  *t.sum = static_cast<float>(static_cast<double>(*t.sum) * static_cast<double>(*t.rescale) + sum);
  *t.top = top;
  // Below, the inverse could be infinite.
  const float factor = largest > 1e-30F ? 65535.0F / largest : 0.0F;
  *t.weight_scale = is_nan ? std::numeric_limits<float>::quiet_NaN() : largest / 65535.0F;
  for (int j = 0; j < t.n; ++j) {
    const float w = std::isnan(t.scores[j]) ? 0.0F : t.scores[j] * factor;
    const auto code = static_cast<std::uint32_t>(std::clamp(std::nearbyint(w), 0.0F, 65535.0F));
    t.high[j] = static_cast<std::uint8_t>(code >> 8);
    t.low[j] = static_cast<std::uint8_t>(code & 255);
  }
}

void accumulate(const S8AccumulateArgs& t) {
  for (int r = 0; r < t.n_rows; ++r)
    for (int c = 0; c < 64; ++c) {
      std::int32_t sum = 0;
      for (std::ptrdiff_t j = 0; j < 4 * t.quads; ++j)
        sum +=
            (256 * t.high[r * t.stride + j] + t.low[r * t.stride + j]) * t.panel[j / 4 * 256 + c * 4 + j % 4];
      float& y = t.y[r * t.y_stride + c];
      y = y * t.rescale[r] + static_cast<float>(sum) * t.weight_scale[r];
    }
}

}  // namespace

extern const AttentionS8Kernels kAttentionS8Scalar = {"scalar", pack_keys, pack_values, soften, accumulate};

}  // namespace triptych::kernels
