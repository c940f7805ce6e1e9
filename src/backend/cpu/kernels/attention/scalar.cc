// The oracle of attention.h: three passes over the keys in double precision, no blocks.
#include <cmath>
#include <limits>

#include "backend/cpu/kernels/attention/attention.h"
#include "backend/cpu/kernels/attention/key_blocks.h"
#include "backend/cpu/kernels/scalar_load.h"

namespace triptych::kernels {
namespace {

// Key and value `j` as floats; both in scratch behind the output.
struct Pair {
  const float* key;
  const float* value;
};
Pair load_pair(const AttentionBlock& a, int j) {
  float* key = a.scratch + 2 * round_up(a.head_dim, 16);
  float* value = key + round_up(a.head_dim, 16);
  BlockRows rows;
  find_rows(a.kv, j, 1, &rows);
  if (a.kv.codec != nullptr) {
    decode_rows(a.kv, 1, a.head_dim, key, value, 0, &rows);
  } else {
    for (int d = 0; d < a.head_dim; ++d) {
      key[d] = load_element(rows.keys[0], a.kv.type, d);
      value[d] = load_element(rows.values[0], a.kv.type, d);
    }
  }
  return {key, value};
}

double score(const AttentionBlock& a, int row, const float* key) {
  double sum = 0;
  for (int d = 0; d < a.head_dim; ++d) sum += static_cast<double>(a.q[row][d]) * static_cast<double>(key[d]);
  return sum * static_cast<double>(a.scale);
}

void attend(const AttentionBlock& a, int row, double* output) {
  double top = -std::numeric_limits<double>::infinity();
  const int first = first_key(a, row);
  for (int j = first; j < a.n_visible[row]; ++j) top = std::fmax(top, score(a, row, load_pair(a, j).key));
  const double shift = std::isinf(top) && top < 0 ? 0 : top;
  double sum = 0;
  for (int d = 0; d < a.head_dim; ++d) output[d] = 0;
  for (int j = first; j < a.n_visible[row]; ++j) {
    const Pair pair = load_pair(a, j);
    const double weight = std::exp(score(a, row, pair.key) - shift);
    sum += weight;
    for (int d = 0; d < a.head_dim; ++d) output[d] += weight * static_cast<double>(pair.value[d]);
  }
  for (int d = 0; d < a.head_dim; ++d) a.y[row][d] = sum == 0 ? 0.0F : static_cast<float>(output[d] / sum);
}

void attention(const AttentionBlock& a) {
  for (int r = 0; r < a.n_rows; ++r) attend(a, r, reinterpret_cast<double*>(a.scratch));
}

}  // namespace

const AttentionKernels kAttentionScalar = {"scalar", attention};

}  // namespace triptych::kernels
