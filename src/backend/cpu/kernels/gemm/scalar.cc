// The oracle of gemm.h, and what machines without a vector implementation run.
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels/gemm/gemm.h"
#include "backend/cpu/kernels/scalar_load.h"

namespace triptych::kernels {
namespace {

constexpr int kMaxRows = 4;
constexpr int kWidth = 8;

void pack(const PackArgs& p) {
  for (int i = 0; i < p.k; ++i) {
    float* out = p.out + static_cast<std::ptrdiff_t>(i) * p.out_stride;
    for (int r = 0; r < p.out_stride; ++r)
      out[r] = r < p.n_rows ? p.scale * load_element(p.rows[r], p.type, p.k_begin + i) : 0.0F;
  }
}

void tile(const TileArgs& t) {
  float acc[kMaxRows][kWidth] = {};
  for (int i = 0; i < t.k; ++i)
    for (int r = 0; r < t.n_rows; ++r)
      for (int n = 0; n < kWidth; ++n) acc[r][n] += t.a[i * t.lda + r] * t.b[i * kWidth + n];
  for (int r = 0; r < t.n_rows; ++r) {
    for (int n = 0; n < kWidth; ++n) {
      float& c = t.c[r * t.ldc + n];
      c = t.accumulate ? c + acc[r][n] : acc[r][n];
    }
  }
}

}  // namespace

const GemmKernels kGemmScalar = {"scalar", kMaxRows, kWidth, pack, tile};

}  // namespace triptych::kernels
