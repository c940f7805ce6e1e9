// The vector implementation of gemv.h; a *_avx*.cc file includes the vector header first.
//
// A block of R matrix rows meets M vectors: R * M accumulators, each loaded matrix vector is converted once
// and used M times. Several rows at a time give independent sums (an addition takes four cycles) and streams.
#pragma once

#include "backend/cpu/kernels/gemv/gemv.h"

namespace triptych::kernels {
namespace {

constexpr int kMaxVectors = kLanes == 16 ? 6 : 4;

// One half of a group of elements.
template <ElementType T, int H, int R, int M>
TRIPTYCH_INLINE void step(const char* w, ptrdiff_t row_bytes, const float* x, Vf (&acc)[R][M]) {
  Vf v[R];
  TRIPTYCH_UNROLL
  for (int r = 0; r < R; ++r) v[r] = vload_half<T, H>(w + r * row_bytes);
  TRIPTYCH_UNROLL
  for (int m = 0; m < M; ++m) {
    const Vf xv = vload(x + (H * M + m) * kLanes);
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) acc[r][m] = vfma(v[r], xv, acc[r][m]);
  }
}

template <ElementType T, int H, int R, int M>
TRIPTYCH_INLINE void last_step(const char* w, ptrdiff_t row_bytes, const float* x, int n, Vf (&acc)[R][M]) {
  TRIPTYCH_UNROLL
  for (int r = 0; r < R; ++r) {
    const Vf v = vload_half_n<T, H>(w + r * row_bytes, n);
    TRIPTYCH_UNROLL
    for (int m = 0; m < M; ++m) acc[r][m] = vfma(v, vload(x + (H * M + m) * kLanes), acc[r][m]);
  }
}

// R rows at once, while the next R rows are fetched into the second-level cache in the order of their
// addresses: memory answers a linear stream best, and half of the lines are enough, the hardware adds each
// line's neighbour. (Into the first level they would displace x.) Measured on Zen 4 with one thread and 8
// rows of float32: 24 GB/s without, 26 with every line, 28 with every second.
template <ElementType T, int R, int M>
void block(const GemvArgs& g, const char* w, float* y, float* sums) {
  constexpr ptrdiff_t kBytes = T == ElementType::kF32 ? 4 : 2;
  constexpr ptrdiff_t kGroup = 2 * kLanes;
  constexpr ptrdiff_t kTwoLines_bytes = 128;
  const ptrdiff_t row_bytes = g.w_stride * kBytes;
  const float* x = g.x;
  const char* next = w + R * row_bytes;
  const bool whole_rows = g.is_first && g.is_last;  // else what follows in memory is not what comes next
  Vf acc[R][M];
  TRIPTYCH_UNROLL
  for (int r = 0; r < R; ++r) {
    TRIPTYCH_UNROLL
    for (int m = 0; m < M; ++m) acc[r][m] = g.is_first ? vzero() : vload(sums + (r * M + m) * kLanes);
  }
  ptrdiff_t i = 0;
  for (; i + kGroup <= g.k; i += kGroup) {
    if (whole_rows) {
      TRIPTYCH_UNROLL
      for (ptrdiff_t j = 0; j < R * kGroup * kBytes; j += kTwoLines_bytes) prefetch_l2(next + j);
    }
    next += R * kGroup * kBytes;
    step<T, 0>(w, row_bytes, x, acc);
    step<T, 1>(w, row_bytes, x, acc);
    w += kGroup * kBytes;
    x += kGroup * M;
  }
  if (i < g.k) {
    last_step<T, 0>(w, row_bytes, x, static_cast<int>(g.k - i), acc);
    last_step<T, 1>(w, row_bytes, x, static_cast<int>(g.k - i), acc);
  }
  if (!g.is_last) {
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) {
      TRIPTYCH_UNROLL
      for (int m = 0; m < M; ++m) vstore(sums + (r * M + m) * kLanes, acc[r][m]);
    }
    return;
  }
  TRIPTYCH_UNROLL
  for (int m = 0; m < M; ++m) {
    TRIPTYCH_UNROLL
    for (int r = 0; r + 4 <= R; r += 4) {
      const Vf four[4] = {acc[r][m], acc[r + 1][m], acc[r + 2][m], acc[r + 3][m]};
      vsum_each(four, y + m * g.y_stride + r);
    }
    TRIPTYCH_UNROLL
    for (int r = R / 4 * 4; r < R; ++r) y[m * g.y_stride + r] = vsum(acc[r][m]);
  }
}

// Blocks of R rows, then smaller ones.
template <ElementType T, int R, int M>
void all_rows(const GemvArgs& g, int first = 0) {
  constexpr ptrdiff_t kBytes = T == ElementType::kF32 ? 4 : 2;
  const char* w = static_cast<const char*>(g.w);
  int n = first;
  for (; n + R <= g.n_rows; n += R)
    block<T, R, M>(g, w + n * g.w_stride * kBytes, g.y + n,
                   g.sums != nullptr ? g.sums + static_cast<ptrdiff_t>(n) * M * kLanes : nullptr);
  if constexpr (R > 1) {
    if (n < g.n_rows) all_rows<T, (R > 4 ? 4 : R / 2), M>(g, n);
  }
}

// R * M accumulators, R matrix vectors and one of x must fit the registers: 32, or 16 with AVX2.
template <ElementType T>
void typed(const GemvArgs& g) {
  constexpr bool kWide = kLanes == 16;
  switch (g.n_vectors) {
    case 1:
      return all_rows < T, kWide ? 8 : 4, 1 > (g);
    case 2:
      return all_rows < T, kWide ? 8 : 4, 2 > (g);
    case 3:
      return all_rows < T, kWide ? 7 : 3, 3 > (g);
    case 4:
      return all_rows < T, kWide ? 6 : 2, 4 > (g);
    default:
      break;
  }
  if constexpr (kWide) {
    switch (g.n_vectors) {
      case 5:
        return all_rows<T, 4, 5>(g);
      default:
        return all_rows<T, 4, 6>(g);
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
