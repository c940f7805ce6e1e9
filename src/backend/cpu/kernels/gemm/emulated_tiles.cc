// The loops of x86_amxbf16.cc over tiles in C++: what tests run where there is no AMX, and under sanitizers.
#include "backend/cpu/kernels/tiles/emulated_tiles.h"

#include <cstring>

#include "backend/cpu/kernels/gemm/gemm.h"
#include "backend/cpu/kernels/gemm/tile_body.h"

namespace triptych::kernels {
namespace {

// Words are moved as they are: as floats most would be subnormal where a pair's second number is zero.
void pack(const PackArgs& p) {
  for (std::ptrdiff_t i = 0; i < p.k; ++i)
    for (int r = 0; r < p.out_stride; ++r) {
      float* to = p.out + i * p.out_stride + r;
      if (r < p.n_rows) {
        std::memcpy(to, static_cast<const char*>(p.rows[r]) + 4 * (p.k_begin + i), sizeof *to);
      } else {
        *to = 0;
      }
    }
}

}  // namespace

extern const GemmKernels kGemmBf16EmulatedTiles = {"emulated_tiles",         kBf16TileMaxRows,
                                                   kBf16PanelWidth,          pack,
                                                   tile_bf16<EmulatedTiles>, &kTileLoop<EmulatedTiles>};

}  // namespace triptych::kernels
