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

// Row r; whether it has low bytes.
bool soften_row(const S8SoftenArgs& t, int r) {
  float* scores = t.scores + r * kS8ChunkKeys;
  const int n_visible = t.n_visible[r];
  float top = t.top[r];
  for (int j = 0; j < n_visible; ++j) top = std::fmax(top, scores[j]);
  t.rescale[r] = t.top[r] == top ? 1.0F : std::exp2(t.top[r] - top);
  double sum = 0;
  double all = 0;
  float largest = 0;
  for (int j = 0; j < t.n; ++j) {
    const float p = j < n_visible ? std::exp2(scores[j] - top) : 0.0F;
    sum += static_cast<double>(p);
    scores[j] = j < n_visible ? p * t.value_scale[j] : 0.0F;
    all += static_cast<double>(scores[j]);
    largest = std::fmax(largest, scores[j]);
  }
  t.sum[r] = static_cast<float>(static_cast<double>(t.sum[r]) * static_cast<double>(t.rescale[r]) + sum);
  t.top[r] = top;
  const bool wide = !(static_cast<double>(largest * kS8Spread) <= all);
  // Below, the inverse could be infinite.
  const float levels = wide ? 65535.0F : 255.0F;
  const float factor = largest > 1e-30F ? levels / largest : 0.0F;
  t.weight_scale[r] =
      std::isnan(all) ? std::numeric_limits<float>::quiet_NaN() : largest / (wide ? 65535.0F : 65280.0F);
  for (int j = 0; j < t.n; ++j) {
    const float w = std::isnan(scores[j]) ? 0.0F : scores[j] * factor;
    const auto code = static_cast<std::uint32_t>(std::clamp(std::nearbyint(w), 0.0F, levels));
    t.high[r * kS8ChunkKeys + j] = static_cast<std::uint8_t>(wide ? code >> 8 : code);
    t.low[r * kS8ChunkKeys + j] = static_cast<std::uint8_t>(wide ? code & 255 : 0);
  }
  return wide;
}

bool soften(const S8SoftenArgs& t) {
  bool any = false;
  for (int r = 0; r < t.n_rows; ++r) any |= soften_row(t, r);
  return any;
}

void accumulate(const S8AccumulateArgs& t) {
  for (int r = 0; r < t.n_rows; ++r)
    for (int c = 0; c < 64; ++c) {
      std::int32_t sum = 0;
      for (std::ptrdiff_t j = 0; j < 4 * t.quads; ++j)
        sum += (256 * t.high[r * t.stride + j] + (t.low != nullptr ? t.low[r * t.stride + j] : 0)) *
               t.panel[j / 4 * 256 + c * 4 + j % 4];
      float& y = t.y[r * t.y_stride + c];
      y = y * t.rescale[r] + static_cast<float>(sum) * t.weight_scale[r];
    }
}

}  // namespace

extern const AttentionS8Kernels kAttentionS8Scalar = {"scalar", pack_keys, pack_values, soften, accumulate};

}  // namespace triptych::kernels
