// The loops of dot_amxint8.cc and dot_amxbf16.cc over tiles in C++, for their test.
#include "backend/cpu/kernels/tiles/emulated_tiles.h"

#include "backend/cpu/kernels/probe/probe.h"
#include "backend/cpu/kernels/probe/tile_body.h"

namespace triptych::kernels {

extern const ProbeKernels kProbeEmulatedTiles = {"emulated_tiles", nullptr, nullptr,
                                                 tile_int8_dot<EmulatedTiles>, tile_bf16_dot<EmulatedTiles>};

}  // namespace triptych::kernels
