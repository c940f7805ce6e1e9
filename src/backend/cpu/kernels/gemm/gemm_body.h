// The vector implementation of gemm.h; a *_avx*.cc file includes the vector header first.
#pragma once

#include "backend/cpu/kernels/gemm/gemm.h"

namespace triptych::kernels {
namespace {

// A group of kLanes rows on its way to `width` columns of the output. Missing rows point to the first one, so
// that loads need no masks; their lanes are cut off or become zero.
struct PackGroup {
  const void* rows[kLanes];
  int n_rows;
  float* out;
  ptrdiff_t stride;
  int width;
  int k;
  float scale;
};

// kPlain: all lanes, not scaled: the weight.
template <bool kPlain>
TRIPTYCH_INLINE void store_column(const PackGroup& g, int i, Vf v) {
  float* to = g.out + i * g.stride;
  if constexpr (kPlain) {
    vstore(to, v);
    return;
  }
  v = vmul(v, vset(g.scale));
  if (g.width == g.stride && g.n_rows == g.width && (g.k - i) * g.width >= kLanes) {
    vstore(to, v);  // the lanes too many lie on columns that are stored next
  } else {
    vstore_n(to, vkeep_n(v, g.n_rows), g.width);
  }
}

// Elements [i, i + kLanes) of the rows.
template <ElementType T, bool kPlain>
TRIPTYCH_INLINE void pack_square(const PackGroup& g, ptrdiff_t k_begin, int i) {
  Vf v[kLanes];
  TRIPTYCH_UNROLL
  for (int r = 0; r < kLanes; ++r) v[r] = vload_as<T>(g.rows[r], k_begin + i);
  vtranspose(v);
  TRIPTYCH_UNROLL
  for (int j = 0; j < kLanes; ++j) store_column<kPlain>(g, i + j, v[j]);
}

// Two squares of a 16-bit type at once: pairs of elements are transposed as one, so that a whole cache line
// of a row is used when it is read (rows a power of two apart fall into the same few places of the cache).
template <ElementType T, bool kPlain>
TRIPTYCH_INLINE void pack_pairs(const PackGroup& g, ptrdiff_t k_begin, int i) {
  Vf v[kLanes];
  TRIPTYCH_UNROLL
  for (int r = 0; r < kLanes; ++r)
    v[r] = vload_as<ElementType::kF32>(static_cast<const char*>(g.rows[r]) + 2 * (k_begin + i), 0);
  vtranspose(v);
  TRIPTYCH_UNROLL
  for (int j = 0; j < kLanes; ++j) {
    store_column<kPlain>(g, i + 2 * j, vwiden_pair<T, false>(v[j]));
    store_column<kPlain>(g, i + 2 * j + 1, vwiden_pair<T, true>(v[j]));
  }
}

template <ElementType T, bool kPlain>
void pack_rows(const PackGroup& g, ptrdiff_t k_begin) {
  int i = 0;
  if constexpr (T != ElementType::kF32)
    for (; i + 2 * kLanes <= g.k; i += 2 * kLanes) pack_pairs<T, kPlain>(g, k_begin, i);
  for (; i + kLanes <= g.k; i += kLanes) pack_square<T, kPlain>(g, k_begin, i);
  if (i == g.k) return;
  const int left = g.k - i;
  Vf v[kLanes];
  for (int r = 0; r < kLanes; ++r) v[r] = vload_as_n<T>(g.rows[r], k_begin + i, left);
  vtranspose(v);
  for (int j = 0; j < left; ++j) store_column<kPlain>(g, i + j, v[j]);
}

template <ElementType T>
void pack_group(const PackGroup& g, ptrdiff_t k_begin) {
  if (g.n_rows == kLanes && g.width == kLanes && g.scale == 1.0F) return pack_rows<T, true>(g, k_begin);
  pack_rows<T, false>(g, k_begin);
}

void pack(const PackArgs& p) {
  for (int first = 0; first < p.out_stride; first += kLanes) {
    const int left = p.n_rows - first;
    PackGroup g;
    g.n_rows = left < 0 ? 0 : (left < kLanes ? left : kLanes);
    // Without rows every lane is cut to zero, whatever is loaded.
    for (int r = 0; r < kLanes; ++r) g.rows[r] = p.rows[g.n_rows == 0 ? 0 : first + (r < g.n_rows ? r : 0)];
    g.out = p.out + first;
    g.stride = p.out_stride;
    g.width = p.out_stride - first < kLanes ? p.out_stride - first : kLanes;
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
