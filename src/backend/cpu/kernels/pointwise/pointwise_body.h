// The vector implementation of pointwise.h; a *_avx*.cc file includes the vector header and simd/math.h
// first.
#pragma once

#include "backend/cpu/kernels/pointwise/pointwise.h"

namespace triptych::kernels {
namespace {

// (1 + tanh(u / 2)) / 2 = logistic(u), u = 2 sqrt(2 / pi) (x + 0.044715 x^3) = x (c0 + c1 x^2), with the low
// part of u: e^u multiplies its rounding error by u.
TRIPTYCH_INLINE Vf gelu_tanh_gate(Vf x) {
  const Vf c0 = vset(0x1.988454p+0F);
  const Vf c0_low = vset(-4.534068e-08F);
  const Vf c1 = vset(0x1.2444f2p-4F);
  const Vf c1_low = vset(2.398832e-09F);
  const Vf square = vmul(x, x);
  const Vf square_low = vfma(x, x, vsub(vzero(), square));
  const Vf term = vmul(c1, square);
  const Vf term_low = vfma(c1, square_low, vfma(c1_low, square, vfma(c1, square, vsub(vzero(), term))));
  const Vf inner = vadd(c0, term);
  const Vf taken = vsub(inner, c0);
  const Vf inner_low = vadd(vadd(vsub(c0, vsub(inner, taken)), vsub(term, taken)), vadd(term_low, c0_low));
  const Vf u = vmul(x, inner);
  return vlogistic(u, vfma(x, inner_low, vfma(x, inner, vsub(vzero(), u))));
}

template <Activation F>
TRIPTYCH_INLINE Vf apply(Vf x) {
  if constexpr (F == Activation::kGelu) {
    return vmul(x, vnormal_cdf(x));
  } else if constexpr (F == Activation::kGeluTanh) {
    return vmul(x, gelu_tanh_gate(x));
  } else if constexpr (F == Activation::kQuickGelu) {
    const Vf u = vmul(x, vset(1.702F));
    return vmul(x, vlogistic(u, vfma(x, vset(1.702F), vsub(vzero(), u))));
  } else if constexpr (F == Activation::kSilu) {
    return vmul(x, vlogistic(x, vzero()));
  } else if constexpr (F == Activation::kRelu) {
    return vmax(vzero(), x);
  } else if constexpr (F == Activation::kRelu2) {
    const Vf r = vmax(vzero(), x);
    return vmul(r, r);
  } else if constexpr (F == Activation::kExp) {
    return vexp(x);
  } else {
    return x;
  }
}

// The same with short polynomials; other functions have no faster form.
template <Activation F>
TRIPTYCH_INLINE Vf apply_lean(Vf x) {
  if constexpr (F == Activation::kGeluTanh) {
    // 2 sqrt(2 / pi) / ln 2 (x + 0.044715 x^3)
    return vmul(x, vlogistic2_lean(vmul(x, vfma(vmul(x, x), vset(0.102943240F), vset(2.30220819F)))));
  } else if constexpr (F == Activation::kQuickGelu) {
    return vmul(x, vlogistic2_lean(vmul(x, vset(2.45546696F))));  // 1.702 / ln 2
  } else if constexpr (F == Activation::kSilu) {
    return vmul(x, vlogistic2_lean(vmul(x, vset(1.44269504F))));
  } else {
    return apply<F>(x);
  }
}

// Results as floats, or as int8 activations with static parameters.
class Output {
 public:
  Output(float* y, const Int8Output& int8)
      : y_(y),
        q_(int8.q),
        scale_(int8.scale),
        inverse_step_(vset(int8.inverse_step)),
        offset_(vset(int8.offset)) {}
  TRIPTYCH_INLINE void put(ptrdiff_t i, Vf v, int n) {
    if (q_ != nullptr) {
      zeros_ = vfma(v, vzero(), zeros_);  // NaN from an infinity or NaN on
      vstore_s8(q_ + i, vmul(vsub(v, offset_), inverse_step_), n);
    } else if (n == kLanes) {
      vstore(y_ + i, v);
    } else {
      vstore_n(y_ + i, v, n);
    }
  }
  TRIPTYCH_INLINE void finish() const {
    if (q_ == nullptr || vsum(zeros_) == 0) return;
    float nan = __builtin_nanf("");
    __atomic_store(scale_, &nan, __ATOMIC_RELAXED);
  }

 private:
  float* y_;
  int8_t* q_;
  float* scale_;
  Vf inverse_step_, offset_;
  Vf zeros_ = vzero();
};

template <Activation F, bool kLean = false>
void epilogue_of(const EpilogueArgs& e) {
  Output output(e.y, e.int8);
  for (ptrdiff_t i = 0; i < e.n; i += kLanes) {
    const int n = e.n - i < kLanes ? static_cast<int>(e.n - i) : kLanes;
    const bool whole = n == kLanes;
    Vf v = whole ? vload(e.x + i) : vload_n(e.x + i, n);
    if (e.bias != nullptr) v = vadd(v, whole ? vload(e.bias + i) : vload_n(e.bias + i, n));
    v = kLean ? apply_lean<F>(v) : apply<F>(v);
    if (e.residual != nullptr) v = vadd(v, whole ? vload(e.residual + i) : vload_n(e.residual + i, n));
    output.put(i, v, n);
  }
  output.finish();
}

template <Activation F, bool kLean = false>
void gated_of(const GatedArgs& t) {
  Output output(t.y, t.int8);
  for (ptrdiff_t i = 0; i < t.n; i += kLanes) {
    const int n = t.n - i < kLanes ? static_cast<int>(t.n - i) : kLanes;
    const bool whole = n == kLanes;
    const auto load = [&](const float* p) { return whole ? vload(p + i) : vload_n(p + i, n); };
    Vf gate = load(t.gate);
    Vf up = load(t.up);
    if (t.gate_bias != nullptr) gate = vadd(gate, load(t.gate_bias));
    if (t.up_bias != nullptr) up = vadd(up, load(t.up_bias));
    output.put(i, vmul(kLean ? apply_lean<F>(gate) : apply<F>(gate), up), n);
  }
  output.finish();
}

void epilogue(const EpilogueArgs& e) {
  switch (e.function) {
    case Activation::kNone:
      return epilogue_of<Activation::kNone>(e);
    case Activation::kGelu:
      return epilogue_of<Activation::kGelu>(e);
    case Activation::kGeluTanh:
      return e.lean ? epilogue_of<Activation::kGeluTanh, true>(e) : epilogue_of<Activation::kGeluTanh>(e);
    case Activation::kQuickGelu:
      return e.lean ? epilogue_of<Activation::kQuickGelu, true>(e) : epilogue_of<Activation::kQuickGelu>(e);
    case Activation::kSilu:
      return e.lean ? epilogue_of<Activation::kSilu, true>(e) : epilogue_of<Activation::kSilu>(e);
    case Activation::kRelu:
      return epilogue_of<Activation::kRelu>(e);
    case Activation::kRelu2:
      return epilogue_of<Activation::kRelu2>(e);
    case Activation::kExp:
      return epilogue_of<Activation::kExp>(e);
  }
}

void gated(const GatedArgs& t) {
  switch (t.function) {
    case Activation::kNone:
      return gated_of<Activation::kNone>(t);
    case Activation::kGelu:
      return gated_of<Activation::kGelu>(t);
    case Activation::kGeluTanh:
      return t.lean ? gated_of<Activation::kGeluTanh, true>(t) : gated_of<Activation::kGeluTanh>(t);
    case Activation::kQuickGelu:
      return t.lean ? gated_of<Activation::kQuickGelu, true>(t) : gated_of<Activation::kQuickGelu>(t);
    case Activation::kSilu:
      return t.lean ? gated_of<Activation::kSilu, true>(t) : gated_of<Activation::kSilu>(t);
    case Activation::kRelu:
      return gated_of<Activation::kRelu>(t);
    case Activation::kRelu2:
      return gated_of<Activation::kRelu2>(t);
    case Activation::kExp:
      return gated_of<Activation::kExp>(t);
  }
}

void add(ptrdiff_t n, const float* a, const float* b, float* y) {
  ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) vstore(y + i, vadd(vload(a + i), vload(b + i)));
  if (i < n) {
    const int left = static_cast<int>(n - i);
    vstore_n(y + i, vadd(vload_n(a + i, left), vload_n(b + i, left)), left);
  }
}

void scale(ptrdiff_t n, float factor, const float* x, float* y) {
  const Vf f = vset(factor);
  ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) vstore(y + i, vmul(f, vload(x + i)));
  if (i < n) {
    const int left = static_cast<int>(n - i);
    vstore_n(y + i, vmul(f, vload_n(x + i, left)), left);
  }
}

void rotate_half(ptrdiff_t half, const float* cos, const float* sin, float* x) {
  ptrdiff_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Vf c = vload(cos + i);
    const Vf s = vload(sin + i);
    const Vf a = vload(x + i);
    const Vf b = vload(x + half + i);
    vstore(x + i, vfnma(b, s, vmul(a, c)));
    vstore(x + half + i, vfma(a, s, vmul(b, c)));
  }
  if (i == half) return;
  const int n = static_cast<int>(half - i);
  const Vf c = vload_n(cos + i, n);
  const Vf s = vload_n(sin + i, n);
  const Vf a = vload_n(x + i, n);
  const Vf b = vload_n(x + half + i, n);
  vstore_n(x + i, vfnma(b, s, vmul(a, c)), n);
  vstore_n(x + half + i, vfma(a, s, vmul(b, c)), n);
}

}  // namespace
}  // namespace triptych::kernels
