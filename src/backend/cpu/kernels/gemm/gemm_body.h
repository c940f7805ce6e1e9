// The vector implementation of gemm.h; a *_avx*.cc file includes the vector header first.
#pragma once

#include "backend/cpu/kernels/gemm/gemm.h"

namespace triptych::kernels {
namespace {

// acc + a b; a file may define another.
#if !defined(TRIPTYCH_TILE_FMA)
#define TRIPTYCH_TILE_FMA(a, b, acc) vfma(a, b, acc)
#endif

constexpr int kPackRows = 8;

// Eight rows on their way to `width` columns of the output. Missing rows point to the first one, so that
// loads need no masks; their columns are cut off or become zero.
struct PackGroup {
  const void* rows[kPackRows];
  int n_rows;
  float* out;
  ptrdiff_t stride;
  int width;
  int k;
  float scale;
};

// kPlain: eight rows as they are: the weight.
template <bool kPlain>
TRIPTYCH_INLINE void store_column(const PackGroup& g, int i, Vf v, int part) {
  float* to = g.out + i * g.stride;
  if constexpr (kPlain) {
    vstore_column(to, v, part);
    return;
  }
  if (g.scale != 1.0F) v = vmul(v, vset(g.scale));  // words of two numbers must stay as they are
  if (g.width == g.stride && g.n_rows == g.width && (g.k - i) * g.width >= kPackRows) {
    vstore_column(to, v, part);  // what is too much lies on columns that are stored next
  } else {
    vstore_column_n(to, vkeep_rows(v, g.n_rows), part, g.width);
  }
}

// Elements [i, i + n) of the rows, n <= kLanes.
template <ElementType T, bool kPlain>
TRIPTYCH_INLINE void pack_square(const PackGroup& g, ptrdiff_t k_begin, int i, int n) {
  Vf v[kPackRows];
  if (n == kLanes) {
    TRIPTYCH_UNROLL
    for (int r = 0; r < kPackRows; ++r) v[r] = vload_as<T>(g.rows[r], k_begin + i);
    vtranspose8(v);
    TRIPTYCH_UNROLL
    for (int c = 0; c < kLanes; ++c) store_column<kPlain>(g, i + c, v[vector_of(c)], part_of(c));
  } else {
    for (int r = 0; r < kPackRows; ++r) v[r] = vload_as_n<T>(g.rows[r], k_begin + i, n);
    vtranspose8(v);
    for (int c = 0; c < n; ++c) store_column<kPlain>(g, i + c, v[vector_of(c)], part_of(c));
  }
}

// Twice as many elements of a 16-bit type: pairs of elements are transposed as one.
template <ElementType T, bool kPlain>
TRIPTYCH_INLINE void pack_pairs(const PackGroup& g, ptrdiff_t k_begin, int i) {
  Vf v[kPackRows];
  TRIPTYCH_UNROLL
  for (int r = 0; r < kPackRows; ++r)
    v[r] = vload_as<ElementType::kF32>(static_cast<const char*>(g.rows[r]) + 2 * (k_begin + i), 0);
  vtranspose8(v);
  TRIPTYCH_UNROLL
  for (int c = 0; c < kLanes; ++c) {
    const Vf pair = v[vector_of(c)];
    store_column<kPlain>(g, i + 2 * c, vwiden_pair<T, false>(pair), part_of(c));
    store_column<kPlain>(g, i + 2 * c + 1, vwiden_pair<T, true>(pair), part_of(c));
  }
}

template <ElementType T, bool kPlain>
void pack_rows(const PackGroup& g, ptrdiff_t k_begin) {
  int i = 0;
  if constexpr (T != ElementType::kF32)
    for (; i + 2 * kLanes <= g.k; i += 2 * kLanes) pack_pairs<T, kPlain>(g, k_begin, i);
  for (; i + kLanes <= g.k; i += kLanes) pack_square<T, kPlain>(g, k_begin, i, kLanes);
  if (i < g.k) pack_square<T, kPlain>(g, k_begin, i, g.k - i);
}

template <ElementType T>
void pack_group(const PackGroup& g, ptrdiff_t k_begin) {
  if (g.n_rows == kPackRows && g.width == kPackRows && g.scale == 1.0F) return pack_rows<T, true>(g, k_begin);
  pack_rows<T, false>(g, k_begin);
}

void pack(const PackArgs& p) {
  for (int first = 0; first < p.out_stride; first += kPackRows) {
    const int left = p.n_rows - first;
    PackGroup g;
    g.n_rows = left < 0 ? 0 : (left < kPackRows ? left : kPackRows);
    // Without rows every column is cut to zero, whatever is loaded.
    for (int r = 0; r < kPackRows; ++r)
      g.rows[r] = p.rows[g.n_rows == 0 ? 0 : first + (r < g.n_rows ? r : 0)];
    g.out = p.out + first;
    g.stride = p.out_stride;
    g.width = p.out_stride - first < kPackRows ? p.out_stride - first : kPackRows;
    g.k = p.k;
    g.scale = p.scale;
    switch (p.type) {
      case ElementType::kF32:
        pack_group<ElementType::kF32>(g, p.k_begin);
        break;
      case ElementType::kF16:
        pack_group<ElementType::kF16>(g, p.k_begin);
        break;
      case ElementType::kBF16:
        pack_group<ElementType::kBF16>(g, p.k_begin);
        break;
    }
  }
}

// How far ahead a tile's rows (and those of the next tile) are asked for: they come from the third-level
// cache, and the hardware stops at each page. Worth 4 to 5 % of the whole product where k is 4096 (Zen 4).
constexpr ptrdiff_t kAhead_floats = 1024;

template <int R>
void tile_rows(const TileArgs& t) {
  Vf acc[R][2];
  TRIPTYCH_UNROLL
  for (int r = 0; r < R; ++r) {
    acc[r][0] = vzero();
    acc[r][1] = vzero();
  }
  if (t.accumulate) {
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) {
      prefetch_l1(t.c + r * t.ldc);
      prefetch_l1(t.c + r * t.ldc + 2 * kLanes - 1);
    }
  }
  const float* a = t.a;
  const float* b = t.b;
  for (int i = 0; i < t.k; ++i) {
    prefetch_l1(a + kAhead_floats);
    const Vf b0 = vload(b);
    const Vf b1 = vload(b + kLanes);
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vf x = vset(a[r]);
      acc[r][0] = TRIPTYCH_TILE_FMA(x, b0, acc[r][0]);
      acc[r][1] = TRIPTYCH_TILE_FMA(x, b1, acc[r][1]);
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
