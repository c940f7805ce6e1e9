// The tile registers of AMX: eight, of up to 16 rows of 64 bytes. Their shapes are configured, per thread,
// and a loop that uses them owns them from begin to end. Kernels of tiles are written over a class with these
// static functions, of which there are two: the instructions (amx_tiles.h), and plain C++ (emulated_tiles.h).
//   configure(config)         LDTILECFG: shapes of all tiles, which become zero
//   save(config)              STTILECFG: the configuration in use; palette 0 where there is none
//   release()                 TILERELEASE
//   zero<T>()                 tile T = 0
//   load<T>(data, stride)     rows from data, stride bytes apart
//   store<T>(data, stride)
//   dot_su<C, A, B>()         C [m][n] += sum_k,j A [m][k][j] B [k][n][j], C of int32, A of int8, B of uint8,
//                             j < 4; sums wrap
//   dot_us<C, A, B>()         the same, A of uint8 and B of int8
//   dot_bf16<C, A, B>()       the same, C of float32, A and B of bfloat16, j < 2: even and odd j summed
//                             apart, subnormal numbers count as zero
// C, A and B must be three tiles.
//
// Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and the
// instructions' pages in volume 2.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace triptych::kernels {

inline constexpr int kTileHeight = 16;
inline constexpr ptrdiff_t kTileRow_bytes = 64;
inline constexpr ptrdiff_t kTile_bytes = kTileHeight * kTileRow_bytes;

/// What LDTILECFG reads and STTILECFG writes.
struct alignas(64) TileConfig {
  uint8_t palette = 0;  // 0: no tiles, all else zero
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};  // of tile i
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

/// All eight tiles as large as they get.
inline constexpr TileConfig kWholeTiles = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

/// What stands around each loop of a kernel of tiles, on the thread that runs it: see TileScope.
struct TileLoop {
  void (*begin)(TileConfig* before);
  void (*end)(const TileConfig* before);
};

}  // namespace triptych::kernels
