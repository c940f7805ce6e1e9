// The vector implementation of gemv.h; a *_avx*.cc file includes the vector header first.
//
// A block of R matrix rows meets M vectors: R * M accumulators, each loaded matrix vector is converted once
// and used M times. Several rows at a time give independent sums (an addition takes four cycles) and streams.
#pragma once

#include "backend/cpu/kernels/gemv/gemv.h"

namespace triptych::kernels {
namespace {

// Bytes ahead of the reading position that are asked for; hardware prefetchers stop at 4 KB pages.
constexpr ptrdiff_t kPrefetch_bytes = 1024;

template <ElementType T, int R, int M>
TRIPTYCH_INLINE void step(const char* w, ptrdiff_t row_bytes, const float* x, ptrdiff_t x_stride,
                          Vf (&acc)[R][M]) {
  Vf v[R];
  TRIPTYCH_UNROLL
  for (int r = 0; r < R; ++r) v[r] = vload_as<T>(w + r * row_bytes, 0);
  TRIPTYCH_UNROLL
  for (int m = 0; m < M; ++m) {
    const Vf xv = vload(x + m * x_stride);
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) acc[r][m] = vfma(v[r], xv, acc[r][m]);
  }
}

template <ElementType T, int R, int M>
void block(const GemvArgs& g, const char* w, const float* x, float* y) {
  constexpr ptrdiff_t kBytes = T == ElementType::kF32 ? 4 : 2;
  constexpr ptrdiff_t kLine = 64 / kBytes;  // elements of a cache line
  const ptrdiff_t row_bytes = g.w_stride * kBytes;
  Vf acc[R][M];
  TRIPTYCH_UNROLL
  for (int r = 0; r < R; ++r) {
    TRIPTYCH_UNROLL
    for (int m = 0; m < M; ++m) acc[r][m] = vzero();
  }
  ptrdiff_t i = 0;
  for (; i + kLine <= g.k; i += kLine) {
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) prefetch_l1(w + r * row_bytes + i * kBytes + kPrefetch_bytes);
    TRIPTYCH_UNROLL
    for (ptrdiff_t j = 0; j < kLine; j += kLanes)
      step<T, R, M>(w + (i + j) * kBytes, row_bytes, x + i + j, g.x_stride, acc);
  }
  for (; i + kLanes <= g.k; i += kLanes) step<T, R, M>(w + i * kBytes, row_bytes, x + i, g.x_stride, acc);
  if (i < g.k) {
    const int n = static_cast<int>(g.k - i);
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vf v = vload_as_n<T>(w + r * row_bytes, i, n);
      TRIPTYCH_UNROLL
      for (int m = 0; m < M; ++m) acc[r][m] = vfma(v, vload_n(x + m * g.x_stride + i, n), acc[r][m]);
    }
  }
  TRIPTYCH_UNROLL
  for (int m = 0; m < M; ++m) {
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) y[m * g.y_stride + r] = vsum(acc[r][m]);
  }
}

template <ElementType T, int R, int M>
void all_rows(const GemvArgs& g, const float* x, float* y) {
  constexpr ptrdiff_t kBytes = T == ElementType::kF32 ? 4 : 2;
  const char* w = static_cast<const char*>(g.w);
  int n = 0;
  for (; n + R <= g.n_rows; n += R) block<T, R, M>(g, w + n * g.w_stride * kBytes, x, y + n);
  for (; n < g.n_rows; ++n) block<T, 1, M>(g, w + n * g.w_stride * kBytes, x, y + n);
}

// R * M accumulators, R matrix vectors and one of x must fit the registers: 32, or 16 with AVX2.
template <ElementType T>
void typed(const GemvArgs& g) {
  constexpr bool kWide = kLanes == 16;
  for (int m = 0; m < g.n_vectors;) {
    const float* x = g.x + m * g.x_stride;
    float* y = g.y + m * g.y_stride;
    const int left = g.n_vectors - m;
    if (left == 1) {
      all_rows<T, kWide ? 8 : 4, 1>(g, x, y);
      m += 1;
    } else if (left == 2) {
      all_rows<T, kWide ? 8 : 4, 2>(g, x, y);
      m += 2;
    } else if (left == 3) {
      all_rows<T, kWide ? 7 : 3, 3>(g, x, y);
      m += 3;
    } else if (!kWide || left < 7) {
      all_rows<T, kWide ? 5 : 2, 4>(g, x, y);
      m += 4;
    } else if (left == 7) {
      if constexpr (kWide) all_rows<T, 3, 7>(g, x, y);
      m += 7;
    } else {
      if constexpr (kWide) all_rows<T, 3, 8>(g, x, y);
      m += 8;
    }
  }
}

void gemv(const GemvArgs& g) {
  switch (g.type) {
    case ElementType::kF32:
      return typed<ElementType::kF32>(g);
    case ElementType::kF16:
      return typed<ElementType::kF16>(g);
    case ElementType::kBF16:
      return typed<ElementType::kBF16>(g);
  }
}

}  // namespace
}  // namespace triptych::kernels
