// clang-format off
// Weights of 4 bits in groups, activations of 8 bits (kernels/gemm_s8). Two ways to multiply:
//   rows        few rows of x: y = s_x sum_g s_g (sum_{k in g} u q - zero_g sum_{k in g} q), u the stored
//               code; the panel is streamed once, so that the speed is memory's.
//   requantize  many rows: a panel becomes 8-bit weights with one scale a column, for kernels/gemm_s8's
//               tiles. The rounding adds an error of 1/254 of a column's largest weight, 20 dB below that
//               of the 4 bits.
// The same bits from every implementation.
//
// A panel holds 64 columns. For each group, one after another (a single stream):
//   codes   [ceil(g / 8)][64][4] bytes: of eight neighbours along k, byte j holds element j in its low and
//           4 + j in its high half
//   scales  [64] IEEE half
//   zeros   [64] bytes, only when `asymmetric`; else every zero point is 8
// clang-format on
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels/element_type.h"
#include "backend/cpu/kernels/tiles/tile_config.h"

namespace triptych::kernels {

inline constexpr int kS4MaxRows = 12;  // that any implementation takes
inline constexpr int kS4PanelWidth = 64;
inline constexpr ptrdiff_t kS4MaxK = 65536;
// A group may be a whole row: codes u <= 15 (a zero point as well) times |q| <= 127, and their difference.
static_assert(int64_t{15 + 15} * 127 * kS4MaxK <= INT32_MAX);

struct S4Layout {
  ptrdiff_t k;
  ptrdiff_t group;  // a multiple of 8, or k or more: one group
  bool asymmetric;

  constexpr ptrdiff_t n_groups() const { return (k + group - 1) / group; }
  /// Blocks of eight elements in group g.
  constexpr ptrdiff_t blocks(ptrdiff_t g) const {
    const ptrdiff_t left = k - g * group;
    return ((left < group ? left : group) + 7) / 8;
  }
  constexpr ptrdiff_t tail_bytes() const { return kS4PanelWidth * (asymmetric ? 3 : 2); }
  constexpr ptrdiff_t group_bytes(ptrdiff_t g) const { return blocks(g) * kS4PanelWidth * 4 + tail_bytes(); }
  /// All groups but the last are equally long.
  constexpr ptrdiff_t panel_bytes() const {
    return (n_groups() - 1) * group_bytes(0) + group_bytes(n_groups() - 1);
  }
  /// Elements of a row of q that may be read: k rounded up to 8.
  constexpr ptrdiff_t padded_k() const { return (k + 7) / 8 * 8; }
};

struct S4RowsArgs {
  S4Layout layout;
  int n_rows;       // 1 .. max_rows of the implementation
  const int8_t* q;  // [n_rows][q_stride], zeros from k to padded_k
  ptrdiff_t q_stride;
  const int32_t* group_sums;  // [n_rows][n_groups] of q
  const float* row_scale;     // [n_rows]
  const uint8_t* panel;
  float* y;  // [n_rows][y_stride], 64 columns written
  ptrdiff_t y_stride;
};

/// In tile order: where quad i of `quads` stands in a panel that was made, its first 16 columns; the others
/// follow a tile (kTile_bytes) apart.
static constexpr ptrdiff_t s4_tile_at(ptrdiff_t quads, ptrdiff_t i) {
  const ptrdiff_t gap = i / 16 == quads / 16 ? 16 - quads % 16 : 0;
  return i / 16 * 4 * kTile_bytes + (i % 16 + gap) * kTileRow_bytes;
}

struct S4RequantizeArgs {
  S4Layout layout;
  const uint8_t* panel;
  const float* column_scale;  // [64] largest magnitude of the column / 127; zero: the column is nothing
  uint8_t*
      out;  // [ceil(k / 8) * 2][64][4], as s8 panels; up to 3 quads more than s8_quads(k) when k is ragged
  bool in_tiles =
      false;  // the same quads in tile order (gemm_s8.h), all its steps written; where makes_tiles
};

struct GemmS4Kernels {
  const char* name;
  void (*rows)(const S4RowsArgs& args);
  void (*requantize)(const S4RequantizeArgs& args);
  int max_rows = 6;          // of one call of rows
  bool makes_tiles = false;  // whether requantize can write tile order
};

/// The best implementation for the instruction sets that may be used.
const GemmS4Kernels& gemm_s4_kernels(CpuFeatures features);

extern const GemmS4Kernels kGemmS4Scalar;
extern const GemmS4Kernels kGemmS4Avx2;
extern const GemmS4Kernels kGemmS4Avx512Vnni;
extern const GemmS4Kernels kGemmS4Neon;
extern const GemmS4Kernels kGemmS4Dotprod;

}  // namespace triptych::kernels
