// The vector implementation of gemm.h; a *_avx*.cc file includes the vector header first.
#pragma once

#include "backend/cpu/kernels/gemm/gemm.h"

namespace triptych::kernels {
namespace {

// Packs kLanes rows (missing ones are zero) through a transposition of kLanes x kLanes squares.
template <ElementType T>
void pack_group(const PackArgs& p, int row_begin, int n_rows, int width) {
  float* out = p.out + row_begin;
  const Vf scale = vset(p.scale);
  const bool scaled = p.scale != 1.0F;
  for (int i = 0; i < p.k; i += kLanes) {
    const int n = p.k - i < kLanes ? p.k - i : kLanes;
    Vf v[kLanes];
    if (n == kLanes && n_rows == kLanes) {
      TRIPTYCH_UNROLL
      for (int r = 0; r < kLanes; ++r) v[r] = vload_as<T>(p.rows[row_begin + r], p.k_begin + i);
    } else {
      for (int r = 0; r < kLanes; ++r)
        v[r] = r < n_rows ? vload_as_n<T>(p.rows[row_begin + r], p.k_begin + i, n) : vzero();
    }
    vtranspose(v);
    if (scaled) {
      TRIPTYCH_UNROLL
      for (int r = 0; r < kLanes; ++r) v[r] = vmul(v[r], scale);
    }
    float* to = out + static_cast<ptrdiff_t>(i) * p.out_stride;
    if (n == kLanes && width == kLanes) {
      TRIPTYCH_UNROLL
      for (int j = 0; j < kLanes; ++j) vstore(to + static_cast<ptrdiff_t>(j) * p.out_stride, v[j]);
    } else {
      for (int j = 0; j < n; ++j) vstore_n(to + static_cast<ptrdiff_t>(j) * p.out_stride, v[j], width);
    }
  }
}

void pack(const PackArgs& p) {
  for (int r = 0; r < p.out_stride; r += kLanes) {
    const int left = p.n_rows - r;
    const int n_rows = left < 0 ? 0 : (left < kLanes ? left : kLanes);
    const int width = p.out_stride - r < kLanes ? p.out_stride - r : kLanes;
    switch (p.type) {
      case ElementType::kF32:
        pack_group<ElementType::kF32>(p, r, n_rows, width);
        break;
      case ElementType::kF16:
        pack_group<ElementType::kF16>(p, r, n_rows, width);
        break;
      case ElementType::kBF16:
        pack_group<ElementType::kBF16>(p, r, n_rows, width);
        break;
    }
  }
}

template <int R>
void tile_rows(const TileArgs& t) {
  Vf acc[R][2];
  TRIPTYCH_UNROLL
  for (int r = 0; r < R; ++r) {
    acc[r][0] = vzero();
    acc[r][1] = vzero();
  }
  const float* a = t.a;
  const float* b = t.b;
  for (int i = 0; i < t.k; ++i) {
    const Vf b0 = vload(b);
    const Vf b1 = vload(b + kLanes);
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vf x = vset(a[r]);
      acc[r][0] = vfma(x, b0, acc[r][0]);
      acc[r][1] = vfma(x, b1, acc[r][1]);
    }
    a += t.lda;
    b += 2 * kLanes;
  }
  float* c = t.c;
  if (t.accumulate) {
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) {
      vstore(c, vadd(vload(c), acc[r][0]));
      vstore(c + kLanes, vadd(vload(c + kLanes), acc[r][1]));
      c += t.ldc;
    }
  } else {
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) {
      vstore(c, acc[r][0]);
      vstore(c + kLanes, acc[r][1]);
      c += t.ldc;
    }
  }
}

template <int R>
void tile_dispatch(const TileArgs& t) {
  if constexpr (R > 1) {
    if (t.n_rows < R) return tile_dispatch<R - 1>(t);
  }
  tile_rows<R>(t);
}

void tile(const TileArgs& t) { tile_dispatch<kTileRows>(t); }

}  // namespace
}  // namespace triptych::kernels
