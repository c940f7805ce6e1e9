// The loops of x86_amxint8.cc over tiles in C++: what tests run where there is no AMX, and under sanitizers.
#include "backend/cpu/kernels/tiles/emulated_tiles.h"

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/gemm_s8/tile_body.h"

namespace triptych::kernels {
namespace {

void quantize(const S8QuantizeArgs& t) { kGemmS8Scalar.quantize(t); }
void sums(const S8SumsArgs& t) { kGemmS8Scalar.sums(t); }

}  // namespace

extern const GemmS8Kernels kGemmS8EmulatedTiles = {
    "emulated_tiles", quantize, tile<EmulatedTiles>, sums, kS8TileMaxRows, &kTileLoop<EmulatedTiles>};

}  // namespace triptych::kernels
