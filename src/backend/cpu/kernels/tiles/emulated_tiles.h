// The tiles of tile_config.h in plain C++: what the instructions do, for machines without them and for
// sanitizers, which see no access of a tile instruction. Each thread has tiles of its own. Uses that the
// processor answers with #UD or #GP throw.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels/tiles/tile_config.h"
#include "base/error.h"
#include "base/half.h"

namespace triptych::kernels {

class EmulatedTiles {
 public:
  static void configure(const TileConfig& config) {
    TRIPTYCH_CHECK(config.palette <= 1, "palette {}", config.palette);
    for (int i = 0; i < 16; ++i) {
      const bool there = config.palette == 1 && i < kTiles;
      TRIPTYCH_CHECK(there ? config.rows[i] <= kTileHeight && config.row_bytes[i] <= kTileRow_bytes
                           : config.rows[i] == 0 && config.row_bytes[i] == 0,
                     "tile {}: {} rows of {} bytes", i, config.rows[i], config.row_bytes[i]);
    }
    state().config = config;
    std::memset(state().tiles, 0, sizeof state().tiles);
  }
  static void save(TileConfig& config) { config = state().config; }
  static void release() { configure({}); }

  template <int kTile>
  static void zero() {
    check_shape(kTile);
    std::memset(state().tiles[kTile], 0, sizeof state().tiles[kTile]);
  }
  template <int kTile>
  static void load(const void* data, std::ptrdiff_t stride) {
    check_shape(kTile);
    std::memset(state().tiles[kTile], 0, sizeof state().tiles[kTile]);
    for (int r = 0; r < rows(kTile); ++r)
      std::memcpy(state().tiles[kTile][r], static_cast<const char*>(data) + r * stride, row_bytes(kTile));
  }
  template <int kTile>
  static void store(void* data, std::ptrdiff_t stride) {
    check_shape(kTile);
    for (int r = 0; r < rows(kTile); ++r)
      std::memcpy(static_cast<char*>(data) + r * stride, state().tiles[kTile][r], row_bytes(kTile));
  }
  template <int kC, int kA, int kB>
  static void dot_su() {
    dot_bytes<std::int8_t, std::uint8_t>(kC, kA, kB);
  }
  template <int kC, int kA, int kB>
  static void dot_us() {
    dot_bytes<std::uint8_t, std::int8_t>(kC, kA, kB);
  }
  template <int kC, int kA, int kB>
  static void dot_bf16() {
    check_product(kC, kA, kB);
    for (int m = 0; m < rows(kC); ++m)
      for (std::size_t n = 0; n < row_bytes(kC) / 4; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < rows(kB); ++k) {
          const auto at = static_cast<std::size_t>(k);
          even = flush(std::fma(bf16_at(kA, m, 2 * at), bf16_at(kB, k, 2 * n), even));
          odd = flush(std::fma(bf16_at(kA, m, 2 * at + 1), bf16_at(kB, k, 2 * n + 1), odd));
        }
        float sum;
        std::memcpy(&sum, state().tiles[kC][m] + 4 * n, sizeof sum);
        sum = flush(flush(sum) + flush(even + odd));
        std::memcpy(state().tiles[kC][m] + 4 * n, &sum, sizeof sum);
      }
  }

 private:
  static constexpr int kTiles = 8;
  struct State {
    TileConfig config;
    std::uint8_t tiles[kTiles][kTileHeight][kTileRow_bytes] = {};
  };
  static State& state() {
    static thread_local State of_thread;
    return of_thread;
  }
  static int rows(int tile) { return state().config.rows[tile]; }
  static std::size_t row_bytes(int tile) { return state().config.row_bytes[tile]; }

  static void check_shape(int tile) {
    TRIPTYCH_CHECK(rows(tile) > 0 && row_bytes(tile) > 0, "tile {} is not configured", tile);
  }
  static void check_product(int c, int a, int b) {
    TRIPTYCH_CHECK(c != a && c != b && a != b, "tiles {}, {}, {} of a product are not three", c, a, b);
    for (const int tile : {c, a, b}) {
      check_shape(tile);
      TRIPTYCH_CHECK(row_bytes(tile) % 4 == 0, "tile {}: rows of {} bytes", tile, row_bytes(tile));
    }
    TRIPTYCH_CHECK(rows(c) == rows(a) && row_bytes(c) == row_bytes(b) &&
                       row_bytes(a) == 4 * static_cast<std::size_t>(rows(b)),
                   "tiles {}, {}, {}: their shapes do not fit", c, a, b);
  }

  template <typename A, typename B>
  static void dot_bytes(int c, int a, int b) {
    check_product(c, a, b);
    for (int m = 0; m < rows(c); ++m)
      for (std::size_t n = 0; n < row_bytes(c) / 4; ++n) {
        std::uint32_t sum;
        std::memcpy(&sum, state().tiles[c][m] + 4 * n, sizeof sum);
        for (int k = 0; k < rows(b); ++k)
          for (std::size_t j = 0; j < 4; ++j) {
            const int x = static_cast<A>(state().tiles[a][m][4 * static_cast<std::size_t>(k) + j]);
            const int w = static_cast<B>(state().tiles[b][k][4 * n + j]);
            sum += static_cast<std::uint32_t>(x * w);
          }
        std::memcpy(state().tiles[c][m] + 4 * n, &sum, sizeof sum);
      }
  }

  static float flush(float x) { return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }
  static float bf16_at(int tile, int row, std::size_t i) {
    std::uint16_t bits;
    std::memcpy(&bits, state().tiles[tile][row] + 2 * i, sizeof bits);
    return flush(bf16_to_f32(bits));
  }
};

}  // namespace triptych::kernels
