// Pieces of attention in 8-bit integers, beside the tiles of gemm_s8: scores are s_q s_k (q k), as for any
// product of quantized rows; the weights of the softmax take in the values' scales and become 16-bit
// integers, so that a single large weight (an attention sink) does not round the others away; their two bytes
// are multiplied one after the other with 8-bit values, in one 32-bit sum. Compare Zhang et al.,
// "SageAttention: Accurate 8-Bit Attention for Plug-and-play Inference Acceleration" (2024), which keeps this
// product in 16-bit floats, and the online softmax of attention.h.
//
// Keys are taken kS8ChunkKeys at a time. The sum of a chunk stays exact:
// (255 * 256 + 255) * 127 * kS8ChunkKeys = 2,130,673,920 < 2^31.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels/element_type.h"

namespace triptych::kernels {

inline constexpr int kS8ChunkKeys = 256;
static_assert(65535LL * 127 * kS8ChunkKeys < (1LL << 31));

/// Rows of codes become a panel of gemm_s8, [quads of d][64 keys][4], codes + 128; keys and elements beyond
/// are zero codes.
struct S8PackKeysArgs {
  int n_keys;  // 1 .. 64
  int head_dim;
  const void* const* rows;  // [n_keys] pointers to head_dim codes
  uint8_t* panel;
};

/// Columns [column, column + 64) of value rows become a panel [quads of keys][64 columns][4 keys] of signed
/// codes; zeros beyond.
struct S8PackValuesArgs {
  int n_keys;  // 1 .. kS8ChunkKeys
  int head_dim;
  int column;  // a multiple of 64
  const void* const* rows;
  int8_t* panel;  // [(n_keys + 3) / 4][64][4]
};

/// One row of the online softmax over a chunk: scores become 16-bit weights w = exp(score - top) *
/// value_scale.
struct S8SoftenArgs {
  int n;                     // keys, a multiple of 4; codes are written for all
  int n_visible;             // the row sees the first n_visible <= n
  float* scores;             // [round_up(n, 16)], overwritten
  const float* value_scale;  // [round_up(n, 16)]
  float* top;                // in and out: largest score so far
  float* sum;                // in and out: sum of exp(score - top)
  uint8_t* high;             // [round_up(n, 16)] w / *weight_scale is 256 high + low
  uint8_t* low;
  float* weight_scale;  // out; NaN when a weight is
  float* rescale;       // out: factor for what was summed before
};

/// y = y * rescale + weights * values over a chunk, 64 columns.
struct S8AccumulateArgs {
  int n_rows;  // 1 .. 6
  ptrdiff_t quads;
  const uint8_t* high;  // [n_rows][stride]
  const uint8_t* low;
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
  void (*soften)(const S8SoftenArgs& args);
  void (*accumulate)(const S8AccumulateArgs& args);
};

const AttentionS8Kernels& attention_s8_kernels(Isa isa);

extern const AttentionS8Kernels kAttentionS8Scalar;
extern const AttentionS8Kernels kAttentionS8Avx2;
extern const AttentionS8Kernels kAttentionS8Avx512Vnni;

}  // namespace triptych::kernels
