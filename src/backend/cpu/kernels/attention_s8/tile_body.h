// The second product of attention_s8.h over tiles (kernels/tiles/tile_config.h), 32 rows by 32 columns as in
// gemm_s8/tile_body.h. The values' panel is a tile of the right operand as it is.
#pragma once

#include "backend/cpu/kernels/attention_s8/attention_s8.h"
#include "backend/cpu/kernels/tiles/tile_loop_body.h"

namespace triptych::kernels {
namespace {

constexpr int kS8WeightTileRows = 2 * kTileHeight;

// sums [32][64], columns [16 * first, 16 * first + 32): of `weights`, high or low bytes.
template <typename Tiles, int kBlocks>
inline void multiply_weights(const S8AccumulateArgs& t, const uint8_t* weights, int first, int32_t* sums) {
  constexpr ptrdiff_t kPanelRow_bytes = 256;
  const ptrdiff_t block = kTileHeight * t.stride;
  const int8_t* values = t.panel + 64 * first;
  Tiles::template zero<0>();
  Tiles::template zero<1>();
  Tiles::template zero<2>();
  Tiles::template zero<3>();
  for (ptrdiff_t i = 0; i < t.quads; i += 16, weights += 64, values += 16 * kPanelRow_bytes) {
    Tiles::template load<4>(weights, t.stride);
    Tiles::template load<6>(values, kPanelRow_bytes);
    Tiles::template load<7>(values + 64, kPanelRow_bytes);
    Tiles::template dot_us<0, 4, 6>();
    Tiles::template dot_us<1, 4, 7>();
    if constexpr (kBlocks == 2) {
      Tiles::template load<5>(weights + block, t.stride);
      Tiles::template dot_us<2, 5, 6>();
      Tiles::template dot_us<3, 5, 7>();
    }
  }
  int32_t* out = sums + 16 * first;
  Tiles::template store<0>(out, 256);
  Tiles::template store<1>(out + 16, 256);
  if constexpr (kBlocks == 2) {
    Tiles::template store<2>(out + kTileHeight * 64, 256);
    Tiles::template store<3>(out + kTileHeight * 64 + 16, 256);
  }
}

template <typename Tiles>
inline void multiply_all(const S8AccumulateArgs& t, const uint8_t* weights, int32_t* sums) {
  for (int first = 0; first < 4; first += 2) {
    if (t.n_rows > kTileHeight) {
      multiply_weights<Tiles, 2>(t, weights, first, sums);
    } else {
      multiply_weights<Tiles, 1>(t, weights, first, sums);
    }
  }
}

template <typename Tiles>
void accumulate(const S8AccumulateArgs& t) {
  alignas(64) int32_t high[kS8WeightTileRows * 64];
  alignas(64) int32_t low[kS8WeightTileRows * 64];
  multiply_all<Tiles>(t, t.high, high);
  if (t.low != nullptr) multiply_all<Tiles>(t, t.low, low);
  for (int r = 0; r < t.n_rows; ++r) {
    int32_t* sums = high + 64 * r;
    for (int c = 0; c < 64; ++c) sums[c] *= 256;
    if (t.low != nullptr)
      for (int c = 0; c < 64; ++c) sums[c] += low[64 * r + c];
    float* y = t.y + r * t.y_stride;
    for (int c = 0; c < 64; ++c)
      y[c] = __builtin_fmaf(y[c], t.rescale[r], static_cast<float>(sums[c]) * t.weight_scale[r]);
  }
}

}  // namespace
}  // namespace triptych::kernels
