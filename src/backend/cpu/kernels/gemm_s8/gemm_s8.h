// Products of 8-bit integers with 32-bit sums: y [M, N] = s_x (q_x q_w^T) s_w, one scale a row of x and one a
// row of the weight. The caller cuts M and N into tiles; K is whole, so that a sum is finished in registers.
// Everything here runs on the calling thread.
//
// Weights are stored as w + 128, unsigned: VPDPBUSD multiplies unsigned by signed bytes. The product is put
// right once a tile with the sum of the row of x: sum (w + 128) q = sum w q + 128 sum q. Sums stay exact:
// |sum| <= 255 * 127 * K, below 2^31 up to K = 66,000 (kS8MaxK). The same bits from every implementation.
//
// Kernels of tiles (AMX) take rows of x in tile order: blocks of 16 rows, each [steps of 64 codes][16
// rows][64], so that a tile of x is one piece; rows that are not there are zeros. Where a row's quads are no
// multiple of 16, its last step ends with those that are left, zeros before them: it is multiplied with the
// panel's last 16 quads, and nothing behind the panel is read. A panel is a tile of the weight as it is, 256
// bytes from row to row; made anew for a product it may be in tile order, too: [steps of 16 quads][4 times 16
// columns][16 quads][16][4], the last step filled from its end likewise.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels/element_type.h"
#include "backend/cpu/kernels/tiles/tile_config.h"

namespace triptych::kernels {

inline constexpr int kS8MaxRows = 6;      // of a tile, that any implementation but those of tiles takes
inline constexpr int kS8PanelWidth = 64;  // columns of a tile
inline constexpr ptrdiff_t kS8MaxK = 65536;
// What a tile sums up: unsigned bytes (w + 128 <= 255) times |q| <= 127. And what is put right with: 128 sum
// q.
static_assert(int64_t{255} * 127 * kS8MaxK <= INT32_MAX);

/// Groups of four along k; what is beyond k is padding.
constexpr ptrdiff_t s8_quads(ptrdiff_t k) { return (k + 3) / 4; }
constexpr ptrdiff_t s8_panel_bytes(ptrdiff_t k) { return s8_quads(k) * kS8PanelWidth * 4; }

/// In tile order: steps of a row, and where its code i stands, from its first byte on. Static, so that no
/// copy made for an instruction set is linked into code for others.
inline constexpr ptrdiff_t kS8StepQuads = kTileRow_bytes / 4;
inline constexpr ptrdiff_t kS8PanelStep_bytes = kS8StepQuads * kS8PanelWidth * 4;
static constexpr ptrdiff_t s8_tile_steps(ptrdiff_t quads) {
  return (quads + kS8StepQuads - 1) / kS8StepQuads;
}
/// Zeros before what the last step of a row holds.
static constexpr ptrdiff_t s8_tile_gap(ptrdiff_t quads) {
  return (kS8StepQuads - 1 - (quads + kS8StepQuads - 1) % kS8StepQuads) * 4;
}
static constexpr ptrdiff_t s8_tile_at(ptrdiff_t quads, ptrdiff_t i) {
  const ptrdiff_t step = i / kTileRow_bytes;
  return step * kTile_bytes + i % kTileRow_bytes + (step == quads / kS8StepQuads ? s8_tile_gap(quads) : 0);
}

/// One row of x becomes bytes: scale = max |x| / 127, q = x / scale rounded to nearest even, in -127..127,
/// padded with zeros to a multiple of four. A row with an infinity or a NaN gets scale NaN and zeros, so its
/// outputs are NaN.
struct S8QuantizeArgs {
  ptrdiff_t k;
  const float* x;  // [k]
  int8_t* q;       // [4 * s8_quads(k)]
  float* scale;
  int32_t* sum;                   // of q
  int32_t* square_sum = nullptr;  // of their squares, exact: 127^2 * kS8MaxK < 2^31. Null: not wanted
  // Not 0: q is a row in tile order, of so many quads (s8_quads(k) or more), all its steps are written. For
  // kernels of tiles, and those that they are made of.
  ptrdiff_t tile_quads = 0;
};

/// Sums of one row of int8 activations by groups.
struct S8SumsArgs {
  ptrdiff_t k;
  const int8_t* q;      // [k]
  ptrdiff_t group;      // a multiple of 8, or k or more
  int32_t* group_sums;  // [ceil(k / group)]
};

/// Up to 64 rows of weights become a panel [quads][64][4]; rows beyond are zero weights.
struct S8PackArgs {
  int n_rows;
  ptrdiff_t k;
  const uint8_t* codes;  // [n_rows][stride], w + 128, and 128 from k to 4 * s8_quads(k)
  ptrdiff_t stride;
  uint8_t* panel;  // [s8_panel_bytes(k)]
};

struct S8TileArgs {
  int n_rows;  // 1 .. max_rows of the implementation
  ptrdiff_t quads;
  const int8_t* q;  // [n_rows][q_stride]; of kernels of tiles in tile order, from the first row of a block on
  ptrdiff_t q_stride;  // of these 64 bytes a step: 16 times that is a block
  const uint8_t* panel;
  const float* row_scale;     // [n_rows]
  const int32_t* row_sum;     // [n_rows]
  const float* column_scale;  // [64]
  float* y;                   // [n_rows][y_stride], 64 columns written
  ptrdiff_t y_stride;
  bool panel_in_tiles = false;  // in tile order; kernels of tiles only
};

struct GemmS8Kernels {
  const char* name;
  void (*quantize)(const S8QuantizeArgs& args);
  void (*tile)(const S8TileArgs& args);
  void (*sums)(const S8SumsArgs& args);
  int max_rows = 6;                 // of a tile; kS8MaxRows at most without tiles
  const TileLoop* tiles = nullptr;  // not null: takes tile order, and `tile` is called within a TileScope
};

/// The best implementation for the instruction sets that may be used.
const GemmS8Kernels& gemm_s8_kernels(CpuFeatures features);
/// Those of tiles, for many rows; null where there are none.
const GemmS8Kernels* gemm_s8_tile_kernels(CpuFeatures features);

/// Done once a weight; one implementation for all.
void pack_s8_panel(const S8PackArgs& args);

extern const GemmS8Kernels kGemmS8Scalar;
extern const GemmS8Kernels kGemmS8Avx2;
extern const GemmS8Kernels kGemmS8Avx512Vnni;
extern const GemmS8Kernels kGemmS8AmxInt8;
extern const GemmS8Kernels kGemmS8EmulatedTiles;  // the same loops over tiles in C++; chosen by tests only
extern const GemmS8Kernels kGemmS8Neon;
extern const GemmS8Kernels kGemmS8Dotprod;
extern const GemmS8Kernels kGemmS8I8mm;

}  // namespace triptych::kernels
