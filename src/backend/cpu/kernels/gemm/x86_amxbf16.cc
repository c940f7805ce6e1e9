// TDPBF16PS: 16 x 16 x 32 products of bfloat16 an instruction. The panel is packed by the set below.
#include "backend/cpu/kernels/gemm/gemm.h"
#include "backend/cpu/kernels/gemm/tile_body.h"
#include "backend/cpu/kernels/tiles/amx_tiles.h"

namespace triptych::kernels {
namespace {

void pack(const PackArgs& p) { kGemmBf16Avx512.pack(p); }

}  // namespace

extern const GemmKernels kGemmBf16Amx = {"amx_bf16", kBf16TileMaxRows,    kBf16PanelWidth,
                                         pack,       tile_bf16<AmxTiles>, &kTileLoop<AmxTiles>};

}  // namespace triptych::kernels
