// The oracle of attention.h: three passes over the keys in double precision, no blocks.
#include <cmath>
#include <limits>

#include "backend/cpu/kernels/attention/attention.h"
#include "backend/cpu/kernels/attention/key_blocks.h"
#include "backend/cpu/kernels/scalar_load.h"

namespace triptych::kernels {
namespace {

double score(const AttentionBlock& a, int row, int key) {
  const char* k = key_row(a.kv, key);
  double sum = 0;
  for (int d = 0; d < a.head_dim; ++d)
    sum += static_cast<double>(a.q[row][d]) * static_cast<double>(load_element(k, a.kv.type, d));
  return sum * static_cast<double>(a.scale);
}

void attend(const AttentionBlock& a, int row, double* output) {
  double top = -std::numeric_limits<double>::infinity();
  for (int j = 0; j < a.n_visible[row]; ++j) top = std::fmax(top, score(a, row, j));
  const double shift = std::isinf(top) && top < 0 ? 0 : top;
  double sum = 0;
  for (int d = 0; d < a.head_dim; ++d) output[d] = 0;
  for (int j = 0; j < a.n_visible[row]; ++j) {
    const double weight = std::exp(score(a, row, j) - shift);
    sum += weight;
    const char* v = value_row(a.kv, j);
    for (int d = 0; d < a.head_dim; ++d)
      output[d] += weight * static_cast<double>(load_element(v, a.kv.type, d));
  }
  for (int d = 0; d < a.head_dim; ++d) a.y[row][d] = sum == 0 ? 0.0F : static_cast<float>(output[d] / sum);
}

void attention(const AttentionBlock& a) {
  for (int r = 0; r < a.n_rows; ++r) attend(a, r, reinterpret_cast<double*>(a.scratch));
}

}  // namespace

const AttentionKernels kAttentionScalar = {"scalar", attention};

}  // namespace triptych::kernels
