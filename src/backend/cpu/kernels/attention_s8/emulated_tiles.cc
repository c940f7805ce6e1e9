// The loops of x86_amxint8.cc over tiles in C++: what tests run where there is no AMX, and under sanitizers.
#include "backend/cpu/kernels/tiles/emulated_tiles.h"

#include "backend/cpu/kernels/attention_s8/attention_s8.h"
#include "backend/cpu/kernels/attention_s8/tile_body.h"

namespace triptych::kernels {

extern const AttentionS8TileKernels kAttentionS8EmulatedTiles = {
    "emulated_tiles", accumulate<EmulatedTiles>, kS8WeightTileRows, &kTileLoop<EmulatedTiles>};

}  // namespace triptych::kernels
