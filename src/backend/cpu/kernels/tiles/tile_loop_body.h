// Begin and end of a loop over tiles: whole tiles, then the configuration that was there, if any (of a
// library that works with AMX in this thread, too; what its tiles held is lost at any call, by the ABI).
#pragma once

#include "backend/cpu/kernels/tiles/tile_config.h"

namespace triptych::kernels {
namespace {

template <typename Tiles>
void begin_tiles(TileConfig* before) {
  Tiles::save(*before);
  Tiles::configure(kWholeTiles);
}

template <typename Tiles>
void end_tiles(const TileConfig* before) {
  // Tiles that are in use cost 8 KB at each switch of the thread, and sleep that is less deep.
  if (before->palette == 0) {
    Tiles::release();
  } else {
    Tiles::configure(*before);
  }
}

template <typename Tiles>
constexpr TileLoop kTileLoop = {begin_tiles<Tiles>, end_tiles<Tiles>};

}  // namespace
}  // namespace triptych::kernels
