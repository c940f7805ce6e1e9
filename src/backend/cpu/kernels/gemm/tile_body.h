// Words of two bfloat16 numbers (gemm.h) over tiles: 32 rows by 32 columns as in gemm_s8/tile_body.h. The
// panel [k][32 columns] is a tile of the weight as it is, 128 bytes from row to row.
#pragma once

#include <string.h>

#include "backend/cpu/kernels/gemm/gemm.h"
#include "backend/cpu/kernels/tiles/tile_loop_body.h"

namespace triptych::kernels {
namespace {

constexpr int kBf16TileMaxRows = 2 * kTileHeight;
constexpr int kBf16PanelWidth = 32;
constexpr int kStepWords = 16;
constexpr ptrdiff_t kPanelRow_bytes = kBf16PanelWidth * 4;

// Sums [32][32]; with kBlocks 1 its first 16 rows. `room` holds a step of the panel.
template <typename Tiles, int kBlocks>
inline void multiply_bf16(const TileArgs& t, float* room, float* sums) {
  const ptrdiff_t row = t.lda * 4;
  const ptrdiff_t block = kTileHeight * t.lda;
  const auto step = [&](const float* a, const float* b) __attribute__((always_inline)) {
    Tiles::template load<4>(a, row);
    Tiles::template load<6>(b, kPanelRow_bytes);
    Tiles::template load<7>(b + 16, kPanelRow_bytes);
    Tiles::template dot_bf16<0, 4, 6>();
    Tiles::template dot_bf16<1, 4, 7>();
    if constexpr (kBlocks == 2) {
      Tiles::template load<5>(a + block, row);
      Tiles::template dot_bf16<2, 5, 6>();
      Tiles::template dot_bf16<3, 5, 7>();
    }
  };
  Tiles::template zero<0>();
  Tiles::template zero<1>();
  Tiles::template zero<2>();
  Tiles::template zero<3>();
  const int whole = t.k / kStepWords;
  const float* a = t.a;
  const float* b = t.b;
  for (int i = 0; i < whole; ++i, a += kStepWords, b += kStepWords * kBf16PanelWidth) step(a, b);
  if (const int left = t.k % kStepWords; left > 0) {
    const auto n_bytes = static_cast<size_t>(left * kPanelRow_bytes);
    memcpy(room, b, n_bytes);
    memset(room + left * kBf16PanelWidth, 0, static_cast<size_t>(kStepWords * kPanelRow_bytes) - n_bytes);
    step(a, room);
  }
  Tiles::template store<0>(sums, kPanelRow_bytes);
  Tiles::template store<1>(sums + 16, kPanelRow_bytes);
  if constexpr (kBlocks == 2) {
    Tiles::template store<2>(sums + kTileHeight * kBf16PanelWidth, kPanelRow_bytes);
    Tiles::template store<3>(sums + kTileHeight * kBf16PanelWidth + 16, kPanelRow_bytes);
  }
}

template <typename Tiles>
void tile_bf16(const TileArgs& t) {
  alignas(64) float sums[kBf16TileMaxRows * kBf16PanelWidth];
  alignas(64) float room[kStepWords * kBf16PanelWidth];
  if (t.n_rows > kTileHeight) {
    multiply_bf16<Tiles, 2>(t, room, sums);
  } else {
    multiply_bf16<Tiles, 1>(t, room, sums);
  }
  for (int r = 0; r < t.n_rows; ++r) {
    const float* from = sums + r * kBf16PanelWidth;
    float* c = t.c + r * t.ldc;
    if (t.accumulate) {
      for (int n = 0; n < kBf16PanelWidth; ++n) c[n] += from[n];
    } else {
      for (int n = 0; n < kBf16PanelWidth; ++n) c[n] = from[n];
    }
  }
}

}  // namespace
}  // namespace triptych::kernels
