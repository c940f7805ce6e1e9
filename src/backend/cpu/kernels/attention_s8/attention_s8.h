// Pieces of attention in 8-bit integers, beside the tiles of gemm_s8: scores are s_q s_k (q k), as for any
// product of quantized rows; the weights of the softmax take in the values' scales and become 16-bit
// integers, so that a single large weight (an attention sink) does not round the others away; their two bytes
// are multiplied one after the other with 8-bit values, in one 32-bit sum. Rows whose weights are much alike
// need one byte. Compare Zhang et al.,
// "SageAttention: Accurate 8-Bit Attention for Plug-and-play Inference Acceleration" (2024), which keeps this
// product in 16-bit floats, and the online softmax of attention.h.
//
// Keys are taken kS8ChunkKeys at a time. The sum of a chunk stays exact:
// (255 * 256 + 255) * 127 * kS8ChunkKeys = 2,130,673,920 < 2^31.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels/element_type.h"
#include "backend/cpu/kernels/tiles/tile_config.h"

namespace triptych::kernels {

inline constexpr int kS8ChunkKeys = 256;
static_assert(65535LL * 127 * kS8ChunkKeys < (1LL << 31));
inline constexpr int kS8AttentionRows = 6;  // of a tile, that any implementation takes
inline constexpr float kS8Spread = 16.0F;

/// Rows of int8 keys become a panel of gemm_s8, [quads of d][64 keys][4], each plus 128; keys and elements
/// beyond stand for zero.
struct S8PackKeysArgs {
  int n_keys;  // 1 .. 64
  int head_dim;
  const void* const* rows;  // [n_keys] pointers to head_dim int8 keys
  uint8_t* panel;
};

/// Columns [column, column + 64) of value rows become a panel [quads of keys][64 columns][4 keys] of
/// int8; zeros beyond.
struct S8PackValuesArgs {
  int n_keys;  // 1 .. kS8ChunkKeys
  int head_dim;
  int column;  // a multiple of 64
  const void* const* rows;
  int8_t* panel;  // [(n_keys + 3) / 4][64][4]
};

/// The online softmax over a chunk, for the rows of a tile: scores become weights w = 2^(score - top) *
/// value_scale, as integers of 16 bits. Where no weight stands out (the sum is at least kS8Spread times the
/// largest) eight bits are as good as the values' own: such a row has zeros in `low`.
struct S8SoftenArgs {
  int n_rows;                // 1 .. max_rows of the implementation
  int n;                     // keys, a multiple of 4; weights are written for all
  const int32_t* n_visible;  // [n_rows] the row sees the first n_visible <= n
  float* scores;             // [n_rows][kS8ChunkKeys] logarithms to base 2; overwritten
  const float* value_scale;  // [kS8ChunkKeys]
  float* top;                // [n_rows] in and out: largest score so far
  float* sum;                // [n_rows] in and out: sum of 2^(score - top)
  uint8_t* high;             // [n_rows][kS8ChunkKeys] w / *weight_scale is 256 high + low
  uint8_t* low;              // the same; may stay unwritten where no row needs it
  float* weight_scale;       // [n_rows] out; NaN when a weight is
  float* rescale;            // [n_rows] out: factor for what was summed before
};

/// y = y * rescale + weights * values over a chunk, 64 columns.
struct S8AccumulateArgs {
  int n_rows;  // 1 .. max_rows of the implementation
  ptrdiff_t quads;
  const uint8_t* high;  // [n_rows][stride]
  const uint8_t* low;   // null: zeros
  ptrdiff_t stride;
  const int8_t* panel;
  const float* weight_scale;  // [n_rows]
  const float* rescale;       // [n_rows]
  float* y;                   // [n_rows][y_stride]
  ptrdiff_t y_stride;
};

struct AttentionS8Kernels {
  const char* name;
  void (*pack_keys)(const S8PackKeysArgs& args);
  void (*pack_values)(const S8PackValuesArgs& args);
  /// Whether a row has anything in `low`.
  bool (*soften)(const S8SoftenArgs& args);
  void (*accumulate)(const S8AccumulateArgs& args);
  int max_rows = 6;  // of a tile, kS8AttentionRows at most
};

/// The second product for many rows, over tiles; scores come from gemm_s8's. The same bits as from the
/// kernels of vectors with fused multiply-adds.
struct AttentionS8TileKernels {
  const char* name;
  /// Of rows in a TileScope. Rows of high and low are zero from 4 * quads up to the next multiple of 64, and
  /// up to the next multiple of 16 rows and of 16 quads of the panel may be read.
  void (*accumulate)(const S8AccumulateArgs& args);
  int max_rows;
  const TileLoop* tiles;
};

const AttentionS8Kernels& attention_s8_kernels(CpuFeatures features);
/// Null where there are none.
const AttentionS8TileKernels* attention_s8_tile_kernels(CpuFeatures features);

extern const AttentionS8Kernels kAttentionS8Scalar;
extern const AttentionS8Kernels kAttentionS8Avx2;
extern const AttentionS8Kernels kAttentionS8Avx512Vnni;
extern const AttentionS8Kernels kAttentionS8Dotprod;
extern const AttentionS8TileKernels kAttentionS8AmxInt8;
extern const AttentionS8TileKernels kAttentionS8EmulatedTiles;  // chosen by tests only

}  // namespace triptych::kernels
