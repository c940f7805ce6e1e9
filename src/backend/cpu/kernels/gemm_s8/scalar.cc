// The oracle: the definitions of gemm_s8.h, one element at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/gemm_s8/int8_sums.h"

namespace triptych::kernels {
namespace {

void quantize(const S8QuantizeArgs& t) {
  float largest = 0;
  bool finite = true;
  for (ptrdiff_t i = 0; i < t.k; ++i) {
    finite = finite && std::isfinite(t.x[i]);
    largest = std::max(largest, std::abs(t.x[i]));
  }
  *t.sum = 0;
  *t.scale = finite ? largest / 127.0F : std::numeric_limits<float>::quiet_NaN();
  // Below the smallest normal number 127 / largest would be infinite.
  const float inverse = largest < 1e-36F || !finite ? 0.0F : 127.0F / largest;
  const bool in_tiles = t.tile_quads > 0;
  const ptrdiff_t quads = in_tiles ? t.tile_quads : s8_quads(t.k);
  if (in_tiles) std::memset(t.q + (s8_tile_steps(quads) - 1) * kTile_bytes, 0, kTileRow_bytes);
  int32_t squares = 0;
  for (ptrdiff_t i = 0; i < 4 * quads; ++i) {
    const float x = i < t.k && inverse > 0 ? t.x[i] * inverse : 0.0F;
    const int code = std::clamp(static_cast<int>(std::nearbyint(x)), -127, 127);
    t.q[in_tiles ? s8_tile_at(quads, i) : i] = static_cast<int8_t>(code);
    *t.sum += code;
    squares += code * code;
  }
  if (t.square_sum != nullptr) *t.square_sum = squares;
}

void tile(const S8TileArgs& t) {
  for (int r = 0; r < t.n_rows; ++r)
    for (int c = 0; c < kS8PanelWidth; ++c) {
      int32_t sum = 0;
      for (ptrdiff_t i = 0; i < t.quads; ++i)
        for (int j = 0; j < 4; ++j)
          sum += static_cast<int32_t>(t.panel[(i * kS8PanelWidth + c) * 4 + j]) *
                 t.q[r * t.q_stride + 4 * i + j];
      t.y[r * t.y_stride + c] =
          static_cast<float>(sum - 128 * t.row_sum[r]) * (t.row_scale[r] * t.column_scale[c]);
    }
}

}  // namespace

void pack_s8_panel(const S8PackArgs& t) {
  std::memset(t.panel, 128, static_cast<size_t>(s8_panel_bytes(t.k)));
  // A block of 16 columns at a time: 64 bytes of each row, and one line of the panel for each quad.
  constexpr ptrdiff_t kBlock = 16;
  const ptrdiff_t quads = s8_quads(t.k);
  for (ptrdiff_t begin = 0; begin < quads; begin += kBlock)
    for (int r = 0; r < t.n_rows; ++r) {
      const ptrdiff_t end = std::min(quads, begin + kBlock);
      for (ptrdiff_t i = begin; i < end; ++i)
        std::memcpy(t.panel + (i * kS8PanelWidth + r) * 4, t.codes + r * t.stride + 4 * i, 4);
    }
}

extern const GemmS8Kernels kGemmS8Scalar = {"scalar", quantize, tile, int8_sums};

}  // namespace triptych::kernels
