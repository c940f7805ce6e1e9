// TDPBSUD; the rest as in dot_avx512bf16.cc.
#include "backend/cpu/kernels/probe/probe.h"
#include "backend/cpu/kernels/probe/tile_body.h"
#include "backend/cpu/kernels/tiles/amx_tiles.h"

namespace triptych::kernels {
namespace {

double fma(long rounds, float* sink) { return kProbeAvx512.fma(rounds, sink); }
void read(const void* data, size_t n_bytes, float* sink) { kProbeAvx512.read(data, n_bytes, sink); }
double bf16_dot(long rounds, float* sink) { return kProbeAvx512Bf16.bf16_dot(rounds, sink); }

}  // namespace

extern const ProbeKernels kProbeAmxInt8 = {"amx_int8", fma, read, tile_int8_dot<AmxTiles>, bf16_dot};

}  // namespace triptych::kernels
