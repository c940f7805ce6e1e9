// The products of gemm_s8.h over tiles (kernels/tiles/tile_config.h). 32 rows by 32 columns: four tiles of
// sums, which hide the latency of a product, two of x and two of the weight, so that one load goes with each
// product; up to 16 rows: by 64 columns. What is left of K needs no other shapes: see the order of tiles.
#pragma once

#include <string.h>

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/tiles/tile_loop_body.h"

namespace triptych::kernels {
namespace {

constexpr int kS8TileMaxRows = 2 * kTileHeight;

// A panel as tiles of 16 quads by 16 columns.
struct PanelTiles {
  const uint8_t* steps;  // whole ones, kS8PanelStep_bytes each
  const uint8_t* last;   // the step that is not whole
  ptrdiff_t row_stride;
  ptrdiff_t column_stride;  // from 16 columns to the next
};

// `room` holds a step, for a panel that is shorter than that.
inline PanelTiles panel_tiles(const S8TileArgs& t, uint8_t* room) {
  constexpr ptrdiff_t kQuad_bytes = kS8PanelWidth * 4;
  const ptrdiff_t whole = t.quads / kS8StepQuads;
  if (t.panel_in_tiles) return {t.panel, t.panel + whole * kS8PanelStep_bytes, kTileRow_bytes, kTile_bytes};
  if (whole > 0) return {t.panel, t.panel + (t.quads - kS8StepQuads) * kQuad_bytes, kQuad_bytes, 64};
  const auto gap = static_cast<size_t>((kS8StepQuads - t.quads) * kQuad_bytes);
  memset(room, 0, gap);
  memcpy(room + gap, t.panel, static_cast<size_t>(t.quads * kQuad_bytes));
  return {room, room, kQuad_bytes, 64};
}

// step(x, w) for all steps along k, x in the first block of rows.
template <typename Step>
inline void for_steps(const S8TileArgs& t, const PanelTiles& panel, Step step) {
  const ptrdiff_t whole = t.quads / kS8StepQuads;
  const int8_t* x = t.q;
  const uint8_t* w = panel.steps;
  for (ptrdiff_t i = 0; i < whole; ++i, x += kTile_bytes, w += kS8PanelStep_bytes) step(x, w);
  if (t.quads % kS8StepQuads != 0) step(x, panel.last);
}

// Sums [32][64]: rows of two blocks, columns [16 * first, 16 * first + 32).
template <typename Tiles>
inline void multiply_32x32(const S8TileArgs& t, const PanelTiles& panel, int first, int32_t* sums) {
  constexpr ptrdiff_t kSums_bytes = kS8PanelWidth * 4;
  const ptrdiff_t block = kTileHeight * t.q_stride;
  const ptrdiff_t at = first * panel.column_stride;
  Tiles::template zero<0>();
  Tiles::template zero<1>();
  Tiles::template zero<2>();
  Tiles::template zero<3>();
  for_steps(
      t, panel, [&](const int8_t* x, const uint8_t* w) __attribute__((always_inline)) {
        Tiles::template load<4>(x, kTileRow_bytes);
        Tiles::template load<6>(w + at, panel.row_stride);
        Tiles::template load<7>(w + at + panel.column_stride, panel.row_stride);
        Tiles::template dot_su<0, 4, 6>();
        Tiles::template dot_su<1, 4, 7>();
        Tiles::template load<5>(x + block, kTileRow_bytes);
        Tiles::template dot_su<2, 5, 6>();
        Tiles::template dot_su<3, 5, 7>();
      });
  int32_t* out = sums + 16 * first;
  Tiles::template store<0>(out, kSums_bytes);
  Tiles::template store<1>(out + 16, kSums_bytes);
  Tiles::template store<2>(out + kTileHeight * kS8PanelWidth, kSums_bytes);
  Tiles::template store<3>(out + kTileHeight * kS8PanelWidth + 16, kSums_bytes);
}

// Sums [16][64] of one block.
template <typename Tiles>
inline void multiply_16x64(const S8TileArgs& t, const PanelTiles& panel, int32_t* sums) {
  constexpr ptrdiff_t kSums_bytes = kS8PanelWidth * 4;
  const ptrdiff_t next = panel.column_stride;
  Tiles::template zero<0>();
  Tiles::template zero<1>();
  Tiles::template zero<2>();
  Tiles::template zero<3>();
  for_steps(
      t, panel, [&](const int8_t* x, const uint8_t* w) __attribute__((always_inline)) {
        Tiles::template load<4>(x, kTileRow_bytes);
        Tiles::template load<5>(w, panel.row_stride);
        Tiles::template load<6>(w + next, panel.row_stride);
        Tiles::template load<7>(w + 2 * next, panel.row_stride);
        Tiles::template dot_su<0, 4, 5>();
        Tiles::template dot_su<1, 4, 6>();
        Tiles::template load<5>(w + 3 * next, panel.row_stride);
        Tiles::template dot_su<2, 4, 7>();
        Tiles::template dot_su<3, 4, 5>();
      });
  Tiles::template store<0>(sums, kSums_bytes);
  Tiles::template store<1>(sums + 16, kSums_bytes);
  Tiles::template store<2>(sums + 32, kSums_bytes);
  Tiles::template store<3>(sums + 48, kSums_bytes);
}

template <typename Tiles>
void tile(const S8TileArgs& t) {
  alignas(64) int32_t sums[kS8TileMaxRows * kS8PanelWidth];
  alignas(64) uint8_t room[kS8PanelStep_bytes];
  const PanelTiles panel = panel_tiles(t, room);
  if (t.n_rows > kTileHeight) {
    multiply_32x32<Tiles>(t, panel, 0, sums);
    multiply_32x32<Tiles>(t, panel, 2, sums);
  } else {
    multiply_16x64<Tiles>(t, panel, sums);
  }
  for (int r = 0; r < t.n_rows; ++r) {
    const int32_t* from = sums + r * kS8PanelWidth;
    float* y = t.y + r * t.y_stride;
    const int32_t correction = 128 * t.row_sum[r];
    for (int c = 0; c < kS8PanelWidth; ++c)
      y[c] = static_cast<float>(from[c] - correction) * (t.row_scale[r] * t.column_scale[c]);
  }
}

}  // namespace
}  // namespace triptych::kernels
