// TDPBSUD: 16 x 16 x 64 products of bytes an instruction. Rows are quantized by the set below.
#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/gemm_s8/tile_body.h"
#include "backend/cpu/kernels/tiles/amx_tiles.h"

namespace triptych::kernels {
namespace {

void quantize(const S8QuantizeArgs& t) { kGemmS8Avx512Vnni.quantize(t); }
void sums(const S8SumsArgs& t) { kGemmS8Avx512Vnni.sums(t); }

}  // namespace

extern const GemmS8Kernels kGemmS8AmxInt8 = {"amx_int8", quantize,       tile<AmxTiles>,
                                             sums,       kS8TileMaxRows, &kTileLoop<AmxTiles>};

}  // namespace triptych::kernels
