// TDPBF16PS; the rest as in dot_amxint8.cc.
#include "backend/cpu/kernels/probe/probe.h"
#include "backend/cpu/kernels/probe/tile_body.h"
#include "backend/cpu/kernels/tiles/amx_tiles.h"

namespace triptych::kernels {
namespace {

double fma(long rounds, float* sink) { return kProbeAvx512.fma(rounds, sink); }
void read(const void* data, size_t n_bytes, float* sink) { kProbeAvx512.read(data, n_bytes, sink); }
double int8_dot(long rounds, float* sink) { return kProbeAmxInt8.int8_dot(rounds, sink); }

}  // namespace

extern const ProbeKernels kProbeAmxBf16 = {"amx_bf16", fma, read, int8_dot, tile_bf16_dot<AmxTiles>};

}  // namespace triptych::kernels
