// The online softmax of attention_s8.h on vectors. Before it come a vector header and
//   lanes_before(n)   a mask of the first n lanes
//   exp2_below(x)     2^x for x <= 0, or something tiny; NaN stays
//   store_codes16(weights, factor, n, high, low), store_codes8(weights, factor, n, high)
//                     weights * factor as integers of 16 or 8 bits, of [0, n) and up to the next multiple of
//                     64
#pragma once

#include <math.h>

#include "backend/cpu/kernels/attention_s8/attention_s8.h"

namespace triptych::kernels {
namespace {

// The largest of the first n scores.
TRIPTYCH_INLINE float top_score(const float* scores, int n) {
  const Vf hidden = vset(-INFINITY);
  Vf high = hidden;
  int j = 0;
  for (; j + kLanes <= n; j += kLanes) high = vmax(high, vload(scores + j));
  if (j < n) high = vmax(high, vselect(lanes_before(n - j), vload(scores + j), hidden));
  return vmax_lane(high);
}

struct WeightTotals {
  Vf exponentials, weights, largest;
};

// Scores of one row become weights; hidden keys have weight zero whatever their values' scale is.
TRIPTYCH_INLINE WeightTotals weigh(float* scores, const float* value_scale, float top, int n_visible, int n) {
  const Vf shift = vset(top);
  WeightTotals total = {vzero(), vzero(), vzero()};
  int j = 0;
  for (; j + kLanes <= n_visible; j += kLanes) {
    const Vf p = exp2_below(vsub(vload(scores + j), shift));
    const Vf w = vmul(p, vload(value_scale + j));
    total.exponentials = vadd(total.exponentials, p);
    total.weights = vadd(total.weights, w);
    total.largest = vmax(total.largest, w);
    vstore(scores + j, w);
  }
  if (j < n_visible) {
    const auto visible = lanes_before(n_visible - j);
    const Vf p = vselect(visible, exp2_below(vsub(vload(scores + j), shift)), vzero());
    const Vf w = vselect(visible, vmul(p, vload(value_scale + j)), vzero());
    total.exponentials = vadd(total.exponentials, p);
    total.weights = vadd(total.weights, w);
    total.largest = vmax(total.largest, w);
    vstore(scores + j, w);
    j += kLanes;
  }
  for (; j < (n + 63) / 64 * 64; j += kLanes) vstore(scores + j, vzero());
  return total;
}

// Each stage runs over all rows, so that one row's reductions overlap with the next row's loop.
bool soften(const S8SoftenArgs& t) {
  static_assert(kS8AttentionRows <= kLanes);
  const size_t row_bytes = static_cast<size_t>(t.n_rows) * sizeof(float);
  float tops[kLanes] = {};
  float before[kLanes] = {};
  memcpy(before, t.top, row_bytes);
  for (int r = 0; r < t.n_rows; ++r) tops[r] = top_score(t.scores + r * kS8ChunkKeys, t.n_visible[r]);
  const Vf top = vmax(vload(tops), vload(before));
  const auto same = vequal(top, vload(before));  // also where nothing was visible so far
  const Vf rescale = vselect(same, vset(1.0F), exp2_below(vsub(vload(before), top)));
  vstore(tops, top);
  memcpy(t.top, tops, row_bytes);
  vstore(before, rescale);
  memcpy(t.rescale, before, row_bytes);
  WeightTotals totals[kS8AttentionRows];
  for (int r = 0; r < t.n_rows; ++r)
    totals[r] = weigh(t.scores + r * kS8ChunkKeys, t.value_scale, tops[r], t.n_visible[r], t.n);
  float factors[kS8AttentionRows];
  bool wide[kS8AttentionRows];
  bool any_wide = false;
  for (int r = 0; r < t.n_rows; ++r) {
    const float most = vmax_lane(totals[r].largest);
    const float all = vsum(totals[r].weights);
    t.sum[r] = t.sum[r] * t.rescale[r] + vsum(totals[r].exponentials);
    wide[r] = !(most * kS8Spread <= all);
    any_wide = any_wide || wide[r];
    // Below, the inverse could be infinite.
    const float levels = wide[r] ? 65535.0F : 255.0F;
    factors[r] = most > 1e-30F ? levels / most : 0.0F;
    t.weight_scale[r] = all != all ? __builtin_nanf("") : most / (wide[r] ? 65535.0F : 65280.0F);
  }
  for (int r = 0; r < t.n_rows; ++r) {
    const float* weights = t.scores + r * kS8ChunkKeys;
    uint8_t* high = t.high + r * kS8ChunkKeys;
    uint8_t* low = t.low + r * kS8ChunkKeys;
    if (wide[r]) {
      store_codes16(weights, vset(factors[r]), t.n, high, low);
    } else {
      store_codes8(weights, vset(factors[r]), t.n, high);
      if (any_wide) memset(low, 0, static_cast<size_t>(t.n));
    }
  }
  return any_wide;
}

}  // namespace
}  // namespace triptych::kernels
