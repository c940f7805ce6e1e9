// Products of bfloat16 numbers with float32 sums. Two neighbours along k are one 32-bit word here: packing
// moves words, and VDPBF16PS multiplies and adds both pairs.
#include "backend/cpu/kernels/simd/vec_avx512.h"

#define TRIPTYCH_TILE_FMA(a, b, acc) \
  _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))
//
#include "backend/cpu/kernels/gemm/gemm_body.h"

namespace triptych::kernels {

extern const GemmKernels kGemmBf16Avx512 = {"avx512_bf16", kTileRows, 2 * kLanes, pack, tile};

}  // namespace triptych::kernels
