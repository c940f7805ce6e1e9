// exp, the normal distribution function and the logistic function on vectors, for kernel bodies; a vector
// header comes first. Largest errors over every float are measured in pointwise_test.cc.
#pragma once

namespace triptych {
namespace {

/// e^(x + low) for x in [-104.5, 89] (or NaN) and small low. Range reduction with ln 2 in two parts (Cody and
/// Waite), then 1 + r + r^2 q(r) with a minimax q of degree 5 on |r| <= ln(2) / 2, relative error 6e-11.
template <bool kHasLow>
TRIPTYCH_INLINE Vf vexp_in_range(Vf x, Vf low) {
  const Vf n = vround(vmul(x, vset(1.44269504F)));
  Vf r = vfnma(n, vset(0.693359375F), x);  // 355 / 512: the product is exact
  r = vfnma(n, vset(-2.12194440e-4F), r);
  if constexpr (kHasLow) r = vadd(r, low);
  Vf q = vset(1.97903029e-4F);
  q = vfma(q, r, vset(1.39447042e-3F));
  q = vfma(q, r, vset(8.33349734e-3F));
  q = vfma(q, r, vset(4.16662944e-2F));
  q = vfma(q, r, vset(1.66666659e-1F));
  q = vfma(q, r, vset(0.5F));
  const Vf p = vadd(vset(1.0F), vfma(vmul(r, r), q, r));
  return vscale2(p, n);
}

// Beyond these bounds e^x is 0 or infinity.
TRIPTYCH_INLINE Vf vexp_clamp(Vf x) { return vmax(vset(-104.5F), vmin(vset(89.0F), x)); }

TRIPTYCH_INLINE Vf vexp(Vf x) { return vexp_in_range<false>(vexp_clamp(x), x); }

/// e^(x + low): `low` carries what the rounding of x lost, at most 2^-17. Where x is clamped low means
/// nothing (it may be large, or NaN for an infinite x) and is limited too.
TRIPTYCH_INLINE Vf vexp(Vf x, Vf low) {
  return vexp_in_range<true>(vexp_clamp(x), vmin(vmax(low, vset(-0x1p-17F)), vset(0x1p-17F)));
}

/// 2^x for x in [-126, 126] (or NaN), a polynomial of degree 5 with relative error 1.6e-7: for values that
/// become 8-bit integers next.
TRIPTYCH_INLINE Vf vexp2_lean(Vf x) {
  const Vf n = vround(x);
  const Vf r = vsub(x, n);
  Vf p = vset(1.32764666e-3F);
  p = vfma(p, r, vset(9.67554096e-3F));
  p = vfma(p, r, vset(5.55071346e-2F));
  p = vfma(p, r, vset(2.40221202e-1F));
  p = vfma(p, r, vset(6.93146944e-1F));
  p = vfma(p, r, vset(1.00000012F));
  return vscale2(p, n);
}
/// 1 / (1 + 2^-x) likewise.
TRIPTYCH_INLINE Vf vlogistic2_lean(Vf x) {
  const Vf e = vexp2_lean(vmax(vset(-126.0F), vmin(vset(126.0F), vsub(vzero(), x))));
  return vdiv(vset(1.0F), vadd(vset(1.0F), e));
}

/// 1 / (1 + e^-(x + low)); for negative x as e^x / (1 + e^x), which does not overflow.
TRIPTYCH_INLINE Vf vlogistic(Vf x, Vf low) {
  const auto negative = vless(x, vzero());
  const Vf e = vexp(vsub(vzero(), vabs(x)), vselect(negative, low, vsub(vzero(), low)));
  return vdiv(vselect(negative, e, vset(1.0F)), vadd(vset(1.0F), e));
}

/// Phi(x), the standard normal distribution function: (1 + erf(x / sqrt 2)) / 2 without its cancellation.
/// Phi(-a) = e^(-a^2 / 2) R(a) with R smooth; R is a polynomial of degree 10 in t = (a - 4) / (a + 4), the
/// substitution of Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x", Math.
/// Comp. 36 (1981). Relative error of the polynomial 4e-9. What the rounding of t costs is put back by R' = a
/// R - 1 / sqrt(2 pi). For x^2 < 1/2, 1/2 plus an odd polynomial (1.4e-9) has fewer roundings.
TRIPTYCH_INLINE Vf vnormal_cdf(Vf x) {
  const Vf a = vmin(vset(20.0F), vabs(x));
  const Vf four = vset(4.0F);
  const Vf above = vadd(a, four);
  const Vf below = vsub(a, four);
  const Vf above_low = vsub(a, vsub(above, four));
  const Vf below_low = vsub(a, vadd(below, four));
  const Vf inverse = vdiv(vset(1.0F), above);
  const Vf t = vmul(below, inverse);
  Vf r = vset(1.139069864e-05F);
  r = vfma(r, t, vset(-4.812753958e-05F));
  r = vfma(r, t, vset(-1.735063150e-04F));
  r = vfma(r, t, vset(6.426862242e-04F));
  r = vfma(r, t, vset(5.030641376e-04F));
  r = vfma(r, t, vset(-8.493247235e-03F));
  r = vfma(r, t, vset(3.086548529e-02F));
  r = vfma(r, t, vset(-7.170729857e-02F));
  r = vfma(r, t, vset(1.243792157e-01F));
  r = vfma(r, t, vset(-1.703977237e-01F));
  r = vfma(r, t, vset(9.441064168e-02F));
  // t_low = (below - t above) / above in full, then a_low = t_low (a + 4)^2 / 8.
  const Vf rest = vsub(vadd(vfnma(t, above, below), below_low), vmul(t, above_low));
  const Vf a_low = vmul(vmul(rest, above), vset(0.125F));
  r = vfma(vfma(a, r, vset(-0.398942280F)), a_low, r);
  const Vf half = vmul(a, vset(-0.5F));
  const Vf s = vmul(half, a);
  const Vf q = vmul(r, vexp(s, vfma(half, a, vsub(vzero(), s))));
  const Vf far = vselect(vless(x, vzero()), q, vsub(vset(1.0F), q));
  const Vf square = vmul(x, x);
  Vf p = vset(1.042538321e-04F);
  p = vfma(p, square, vset(-1.182511648e-03F));
  p = vfma(p, square, vset(9.972700648e-03F));
  p = vfma(p, square, vset(-6.649032645e-02F));
  p = vfma(p, square, vset(3.989422799e-01F));
  return vselect(vless(square, vset(0.5F)), vfma(p, x, vset(0.5F)), far);
}

}  // namespace
}  // namespace triptych
