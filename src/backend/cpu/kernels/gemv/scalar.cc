// The oracle of gemv.h.
#include "backend/cpu/kernels/gemv/gemv.h"
#include "backend/cpu/kernels/scalar_load.h"

namespace triptych::kernels {
namespace {

constexpr int kLanes = 8;  // partial sums: keeps the error small and the loop fast

void gemv(const GemvArgs& g) {
  for (int n = 0; n < g.n_rows; ++n) {
    const char* row =
        static_cast<const char*>(g.w) + n * g.w_stride * static_cast<std::ptrdiff_t>(element_bytes(g.type));
    for (int m = 0; m < g.n_vectors; ++m) {
      float lanes[kLanes] = {};
      float* kept = g.sums != nullptr ? g.sums + (n * g.n_vectors + m) * kLanes : nullptr;
      if (!g.is_first)
        for (int l = 0; l < kLanes; ++l) lanes[l] = kept[l];
      for (std::ptrdiff_t i = 0; i < g.k; ++i)
        lanes[i % kLanes] +=
            g.x[gemv_x_index(g.type, kLanes, g.n_vectors, m, i)] * load_element(row, g.type, i);
      if (!g.is_last) {
        for (int l = 0; l < kLanes; ++l) kept[l] = lanes[l];
        continue;
      }
      g.y[m * g.y_stride + n] =
          ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    }
  }
}

}  // namespace

const GemvKernels kGemvScalar = {"scalar", kLanes, 16, gemv};

}  // namespace triptych::kernels
