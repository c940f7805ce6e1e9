// Matrix product in panels: C [M, N] = A [M, K] * W [N, K]^T. The caller cuts K into blocks and M, N into
// tiles (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008);
// these kernels pack one block and multiply one tile. Everything here runs on the calling thread.
//
// Each element of a tile is one chain over k, from the first to the last, of c = fma(a, w, c) (scalar:
// multiply, then add). So its bits depend neither on the tile's size nor on its place in the matrix.
#pragma once

#include <stddef.h>

#include "backend/cpu/kernels/element_type.h"
#include "backend/cpu/kernels/tiles/tile_config.h"

namespace triptych::kernels {

/// A rectangle of rows to be packed: n_rows rows, k elements of each from element k_begin on.
struct PackArgs {
  const void* const* rows;  // n_rows pointers, any alignment
  int n_rows;
  ElementType type;
  ptrdiff_t k_begin;
  int k;
  float scale;     // factor for every element
  float* out;      // [k][out_stride]: out[i * out_stride + r] = scale * rows[r][k_begin + i]
  int out_stride;  // >= n_rows; columns from n_rows to out_stride become zero
};

struct TileArgs {
  int n_rows;  // 1 .. max_rows
  int k;       // >= 1
  const float*
      a;  // [k][lda]: row r of the tile is a[i * lda + r]; of kernels of tiles see GemmKernels::tiles
  ptrdiff_t lda;
  const float* b;  // [k][panel_width]
  float* c;        // [n_rows][ldc], panel_width columns
  ptrdiff_t ldc;
  bool accumulate;  // c += a b, each product chain starting at zero and added once; else c = a b
};

struct GemmKernels {
  const char* name;
  int max_rows;     // of a tile
  int panel_width;  // columns of a tile
  void (*pack)(const PackArgs& args);
  void (*tile)(const TileArgs& args);
  /// Not null: `tile` is called within a TileScope, and its rows are not packed: row r is a + r * lda, with
  /// zeros from k to the next multiple of 16; n_rows up to the next multiple of 16 may be read.
  const TileLoop* tiles = nullptr;
};

/// The best implementation for the instruction sets that may be used.
const GemmKernels& gemm_kernels(CpuFeatures features);

/// The same for words of two bfloat16 numbers: an element of a and b is a word, k counts words, `type` is
/// kF32 and scale 1. Each word adds a.first * b.first + a.second * b.second, subnormal numbers counting as
/// zero. Tiles sum the first and the second numbers of 16 words apart before they add them, so theirs are
/// other bits than those of VDPBF16PS. Null where an instruction set has nothing for it.
const GemmKernels* gemm_bf16_kernels(CpuFeatures features);

extern const GemmKernels kGemmScalar;
extern const GemmKernels kGemmAvx2;
extern const GemmKernels kGemmAvx512;
extern const GemmKernels kGemmBf16Avx512;
extern const GemmKernels kGemmBf16Amx;
extern const GemmKernels kGemmBf16EmulatedTiles;  // the same loops over tiles in C++; chosen by tests only
extern const GemmKernels kGemmNeon;

}  // namespace triptych::kernels
