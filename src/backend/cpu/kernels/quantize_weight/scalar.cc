// The oracle: the definitions of quantize_weight.h, one element at a time.
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/quantize_weight/quantize_weight.h"

namespace triptych::kernels {
namespace {

WeightRange range(ptrdiff_t n, const float* w) {
  WeightRange out{0, 0, true};
  for (ptrdiff_t i = 0; i < n; ++i) {
    out.finite = out.finite && std::isfinite(w[i]);
    out.low = std::min(out.low, w[i]);
    out.high = std::max(out.high, w[i]);
  }
  return out;
}

void codes(const WeightCodesArgs& t) {
  for (ptrdiff_t i = 0; i < t.n; ++i)
    t.codes[i] = static_cast<uint8_t>(std::clamp(std::nearbyint(t.w[i] / t.scale) + t.zero, t.low, t.high));
}

}  // namespace

extern const QuantizeWeightKernels kQuantizeWeightScalar = {"scalar", range, codes};

}  // namespace triptych::kernels
