// The online softmax of attention_s8.h on vectors; a vector header, `lanes_before` (a mask) and
// `store_codes` come first.
#pragma once

#include <math.h>

#include "backend/cpu/kernels/attention_s8/attention_s8.h"
#include "backend/cpu/kernels/simd/math.h"

namespace triptych::kernels {
namespace {

TRIPTYCH_INLINE Vf vexp_negative(Vf x) { return vexp2_lean(vmax(vset(-126.0F), vmul(x, vset(1.44269504F)))); }

void soften(const S8SoftenArgs& t) {
  const Vf hidden = vset(-INFINITY);
  Vf high = vset(*t.top);
  for (int j = 0; j < t.n; j += kLanes) {
    const int left = t.n_visible - j;
    Vf s = vload(t.scores + j);
    if (left < kLanes) {
      s = vselect(lanes_before(left < 0 ? 0 : left), s, hidden);
      vstore(t.scores + j, s);
    }
    high = vmax(high, s);
  }
  const float top = vmax_lane(high);
  const float shift = top == -INFINITY ? 0.0F : top;
  Vf sum = vzero();
  Vf largest = vzero();
  Vf all = vzero();
  for (int j = 0; j < t.n; j += kLanes) {
    const Vf s = vload(t.scores + j);
    const Vf p = vexp_negative(vsub(s, vset(shift)));
    // Hidden keys have weight zero whatever their values' scale is.
    const Vf visible = vselect(vequal(s, hidden), vzero(), p);
    const Vf w = vselect(vequal(visible, vzero()), vzero(), vmul(visible, vload(t.value_scale + j)));
    sum = vadd(sum, visible);
    all = vadd(all, w);
    largest = vmax(largest, w);
    vstore(t.scores + j, w);
  }
  float change[kLanes];
  vstore(change, vexp_negative(vset(*t.top - shift)));
  *t.rescale = *t.top == top ? 1.0F : *t.top == -INFINITY ? 0.0F : change[0];
  *t.sum = *t.sum * *t.rescale + vsum(sum);
  *t.top = top;
  const float most = vmax_lane(largest);
  const float total = vsum(all);
  *t.weight_scale = total == total ? most / 65535.0F : __builtin_nanf("");
  const Vf factor = vset(most > 1e-30F ? 65535.0F / most : 0.0F);
  for (int j = 0; j < t.n; j += kLanes) store_codes(vmul(vload(t.scores + j), factor), t.high + j, t.low + j);
}

}  // namespace
}  // namespace triptych::kernels
