// Products of tiles in registers (probe.h): four sums, which hide the latency of one.
#pragma once

#include <string.h>

#include "backend/cpu/kernels/probe/probe.h"
#include "backend/cpu/kernels/tiles/tile_loop_body.h"

namespace triptych::kernels {
namespace {

// Tiles 0 to 3 get `product` rounds times; returns the operations done, `depth` of them for each sum and
// product.
template <typename Tiles, typename Product>
double tile_rounds(long rounds, float* sink, int depth, Product product) {
  TileConfig before{};
  begin_tiles<Tiles>(&before);
  alignas(64) unsigned char bytes[kTile_bytes];
  memset(bytes, static_cast<int>(sink[1]), sizeof bytes);
  Tiles::template load<4>(bytes, kTileRow_bytes);
  Tiles::template load<5>(bytes, kTileRow_bytes);
  Tiles::template zero<0>();
  Tiles::template zero<1>();
  Tiles::template zero<2>();
  Tiles::template zero<3>();
  for (long i = 0; i < rounds; ++i) product();
  Tiles::template store<0>(bytes, kTileRow_bytes);
  end_tiles<Tiles>(&before);
  sink[3] = static_cast<float>(bytes[0]);
  return 2.0 * 4 * kTileHeight * 16 * depth * static_cast<double>(rounds);
}

template <typename Tiles>
double tile_int8_dot(long rounds, float* sink) {
  return tile_rounds<Tiles>(
      rounds, sink, 64, []() __attribute__((always_inline)) {
        Tiles::template dot_su<0, 4, 5>();
        Tiles::template dot_su<1, 4, 5>();
        Tiles::template dot_su<2, 4, 5>();
        Tiles::template dot_su<3, 4, 5>();
      });
}

template <typename Tiles>
double tile_bf16_dot(long rounds, float* sink) {
  return tile_rounds<Tiles>(
      rounds, sink, 32, []() __attribute__((always_inline)) {
        Tiles::template dot_bf16<0, 4, 5>();
        Tiles::template dot_bf16<1, 4, 5>();
        Tiles::template dot_bf16<2, 4, 5>();
        Tiles::template dot_bf16<3, 4, 5>();
      });
}

}  // namespace
}  // namespace triptych::kernels
