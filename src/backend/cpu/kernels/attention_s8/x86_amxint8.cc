// TDPBUSD: bytes of weights times int8 values.
#include "backend/cpu/kernels/attention_s8/attention_s8.h"
#include "backend/cpu/kernels/attention_s8/tile_body.h"
#include "backend/cpu/kernels/tiles/amx_tiles.h"

namespace triptych::kernels {

extern const AttentionS8TileKernels kAttentionS8AmxInt8 = {"amx_int8", accumulate<AmxTiles>,
                                                           kS8WeightTileRows, &kTileLoop<AmxTiles>};

}  // namespace triptych::kernels
