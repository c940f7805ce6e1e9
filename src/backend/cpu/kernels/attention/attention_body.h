// The vector implementation of attention.h; a *_avx*.cc file includes the vector header, simd/math.h and
// gemm_body.h (tile and pack) first.
//
// Many rows: the lanes of a vector are query rows, 2 * kLanes of them to a panel. With queries in lanes the
// maximum and the sum of the softmax go across registers, never across lanes, and the scores, computed as K
// Q^T, already lie as the second product, V^T P^T, reads them. Keys are packed and values copied once per
// block for all panels.
//
// Few rows: the lanes are channels, and a score is a dot product of two rows. Both ways add in the same
// order, that of the few: a score is kLanes sums over every kLanes-th channel, added as vsum4 adds them; the
// weights of a block are kLanes sums over every kLanes-th key, added as vsum does; a block's weighted values
// are summed from zero, key by key.
#pragma once

#include <math.h>

#include "backend/cpu/kernels/attention/attention.h"
#include "backend/cpu/kernels/attention/key_blocks.h"
#include "backend/cpu/kernels/attention/row_readers.h"

namespace triptych::kernels {
namespace {

constexpr int kWidth = 2 * kLanes;
constexpr int kMaxPanels = kAttentionMaxRows / kWidth;

// Pieces of the scratch memory.
struct Scratch {
  float* queries;  // [panels][head_dim][kWidth], scaled
  float* keys;     // [head_dim][kKeyBlock]
  float* values;   // [kKeyBlock][value_stride]
  ptrdiff_t value_stride;
  float* scores;        // [kKeyBlock][kWidth]
  float* output;        // [panels][head_dim][kWidth]
  float* decoded_keys;  // [kKeyBlock][value_stride]
};

inline Scratch carve(float* memory, int head_dim) {
  Scratch s;
  const ptrdiff_t d = round_up(head_dim, 16);
  s.value_stride = d;
  s.queries = memory;
  s.output = s.queries + d * kAttentionMaxRows;
  s.keys = s.output + d * kAttentionMaxRows;
  s.values = s.keys + d * (kKeyBlock + 16);
  s.scores = s.values + d * kKeyBlock;
  s.decoded_keys = s.scores + kKeyBlock * kWidth;
  return s;
}

// State of the online softmax of one panel.
struct PanelState {
  Vf max[2];
  Vf sum[2];
};

template <typename Row>
TRIPTYCH_INLINE void widen_row(const Row& row, int n, float* to) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) vstore(to + i, row.at(i, kLanes));
  if (i < n) vstore_n(to + i, row.at(i, n - i), n - i);
}

// What keys and values of a block have still to be multiplied by, for types that keep it apart.
struct RowFactors {
  bool any;
  float keys[kKeyBlock];
  float values[kKeyBlock];
};

// Keys [begin, begin + n) as columns; values as plain rows. Coded keys become floats on the way.
template <typename Row, bool kCoded>
void load_rows(const AttentionBlock& a, const Scratch& s, BlockRows& rows, int n, RowFactors& factors) {
  factors.any = Row::kHasFactor;
  for (int j = 0; j < n; ++j) {
    const Row value(rows.values[j], a.head_dim);
    widen_row(value, a.head_dim, s.values + j * s.value_stride);
    if constexpr (kCoded) {
      const Row key(rows.keys[j], a.head_dim);
      float* to = s.decoded_keys + j * s.value_stride;
      widen_row(key, a.head_dim, to);
      rows.keys[j] = to;
      factors.keys[j] = key.factor;
      factors.values[j] = value.factor;
    }
  }
  pack({rows.keys, n, a.kv.type, 0, a.head_dim, 1.0F, s.keys, kKeyBlock});
}

// Calls `use` with the type that reads this cache's rows: use.template operator()<Row, coded>().
template <typename Use>
TRIPTYCH_INLINE void with_readers(const KeyValueRows& kv, const Use& use) {
  if (kv.codec == nullptr) {
    switch (kv.type) {
      case ElementType::kF32:
        return use.template operator()<PlainRow<ElementType::kF32>, false>();
      case ElementType::kF16:
        return use.template operator()<PlainRow<ElementType::kF16>, false>();
      case ElementType::kBF16:
        return use.template operator()<PlainRow<ElementType::kBF16>, false>();
    }
  }
  switch (kv.code) {
    case KvCode::kInt8:
      return use.template operator()<ScaledRow<KvCode::kInt8>, true>();
    case KvCode::kFp8:
      return use.template operator()<ScaledRow<KvCode::kFp8>, true>();
    case KvCode::kInt4:
      return use.template operator()<GroupedRow, true>();
  }
}

void load_block(const AttentionBlock& a, const Scratch& s, int begin, int n, BlockRows& rows,
                RowFactors& factors) {
  find_rows(a.kv, begin, n, &rows);
  with_readers(a.kv, [&]<typename Row, bool kCoded>() { load_rows<Row, kCoded>(a, s, rows, n, factors); });
}

constexpr int kSumLevels = kLanes == 16 ? 4 : 3;

// Scores of R keys from column `keys` on with a panel of queries.
template <int R>
void score_tile(const float* keys, const float* queries, int head_dim, float* scores) {
  Vf pending[kSumLevels][R][2];  // sums of 2^level lanes that wait for as many others
  for (int i = 0; i < kLanes; ++i) {
    Vf acc[R][2];
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r) {
      acc[r][0] = vzero();
      acc[r][1] = vzero();
    }
    for (int d = kSum4Order[i]; d < head_dim; d += kLanes) {
      const float* k = keys + static_cast<ptrdiff_t>(d) * kKeyBlock;
      const Vf q0 = vload(queries + d * kWidth);
      const Vf q1 = vload(queries + d * kWidth + kLanes);
      TRIPTYCH_UNROLL
      for (int r = 0; r < R; ++r) {
        const Vf x = vset(k[r]);
        acc[r][0] = vfma(x, q0, acc[r][0]);
        acc[r][1] = vfma(x, q1, acc[r][1]);
      }
    }
    int level = 0;
    for (; (i >> level & 1) != 0; ++level) {
      TRIPTYCH_UNROLL
      for (int r = 0; r < R; ++r) {
        acc[r][0] = vadd(pending[level][r][0], acc[r][0]);
        acc[r][1] = vadd(pending[level][r][1], acc[r][1]);
      }
    }
    if (i + 1 < kLanes) {
      TRIPTYCH_UNROLL
      for (int r = 0; r < R; ++r) {
        pending[level][r][0] = acc[r][0];
        pending[level][r][1] = acc[r][1];
      }
    } else {
      TRIPTYCH_UNROLL
      for (int r = 0; r < R; ++r) {
        vstore(scores + r * kWidth, acc[r][0]);
        vstore(scores + r * kWidth + kLanes, acc[r][1]);
      }
    }
  }
}

// All n keys of a block. Tiles that reach beyond meet zeros, or scores that were computed already.
void score_keys(const Scratch& s, const float* queries, int head_dim, int n) {
  static_assert(kKeyBlock >= kTileRows);
  for (int j = 0; j < n; j += kTileRows) {
    const int first = j + kTileRows <= kKeyBlock ? j : kKeyBlock - kTileRows;
    score_tile<kTileRows>(s.keys + first, queries, head_dim, s.scores + first * kWidth);
  }
}

// Scores of n keys with a panel of queries, as far as factors and offsets of pages go.
void finish_scores(const AttentionBlock& a, const Scratch& s, const float* queries, const BlockRows& rows,
                   const RowFactors& factors, int n) {
  if (factors.any)
    for (int j = 0; j < n; ++j) {
      float* row = s.scores + j * kWidth;
      const Vf factor = vset(factors.keys[j]);
      vstore(row, vmul(vload(row), factor));
      vstore(row + kLanes, vmul(vload(row + kLanes), factor));
    }
  if (a.kv.offset_bytes == 0) return;
  const KvOffset* seen = nullptr;
  Vf product[2] = {vzero(), vzero()};
  for (int j = 0; j < n; ++j) {
    const KvOffset* offsets = rows.offsets[j];
    if (offsets == nullptr) continue;
    if (offsets != seen) {
      seen = offsets;
      product[0] = product[1] = vzero();
      for (ptrdiff_t i = 0; i < kv_max_offsets(a.head_dim) && seen[i].value != 0; ++i) {
        const float* q = queries + seen[i].channel * kWidth;
        const Vf value = vset(of_bf16_bits(seen[i].value));
        product[0] = vadd(product[0], vmul(vload(q), value));
        product[1] = vadd(product[1], vmul(vload(q + kLanes), value));
      }
    }
    float* row = s.scores + j * kWidth;
    vstore(row, vadd(vload(row), product[0]));
    vstore(row + kLanes, vadd(vload(row + kLanes), product[1]));
  }
}

// Scores of n keys become weights; the state and the rescaling of the earlier output follow. `visible`
// counts, for each lane, the keys seen from the block's first on.
TRIPTYCH_INLINE void softmax_step(float* scores, int n, const float* visible, bool masked, PanelState& state,
                                  Vf* rescale) {
  TRIPTYCH_UNROLL
  for (int h = 0; h < 2; ++h) {
    float* column = scores + h * kLanes;
    const Vf limit = vload(visible + h * kLanes);
    const Vf hidden = vset(-INFINITY);
    Vf top = state.max[h];
    for (int j = 0; j < n; ++j) {
      Vf v = vload(column + j * kWidth);
      if (masked) {
        v = vselect(vless(vset(static_cast<float>(j)), limit), v, hidden);
        vstore(column + j * kWidth, v);
      }
      top = vmax(top, v);
    }
    // No visible key yet: subtract 0, so that exp(-inf) is 0 and not exp(-inf + inf).
    const Vf shift = vselect(vequal(top, hidden), vzero(), top);
    rescale[h] = vexp(vsub(state.max[h], shift));
    Vf sums[kLanes];
    TRIPTYCH_UNROLL
    for (int l = 0; l < kLanes; ++l) sums[l] = vzero();
    const auto weigh = [&](int j) __attribute__((always_inline)) {
      const Vf p = vexp(vsub(vload(column + j * kWidth), shift));
      vstore(column + j * kWidth, p);
      return p;
    };
    int j = 0;
    for (; j + kLanes <= n; j += kLanes) {
      TRIPTYCH_UNROLL
      for (int l = 0; l < kLanes; ++l) sums[l] = vadd(sums[l], weigh(j + l));
    }
    TRIPTYCH_UNROLL
    for (int l = 0; l < kLanes; ++l)
      if (j + l < n) sums[l] = vadd(sums[l], weigh(j + l));
    TRIPTYCH_UNROLL
    for (int step = kLanes / 2; step > 0; step /= 2) {
      TRIPTYCH_UNROLL
      for (int l = 0; l < step; ++l) sums[l] = vadd(sums[l], sums[l + step]);
    }
    state.sum[h] = vadd(vmul(state.sum[h], rescale[h]), sums[0]);
    state.max[h] = top;
  }
}

// Scores of the keys before a lane's first, of those of a block up to `end`, become -infinity. `hidden`
// counts, for each lane, the keys it does not see from the block's first on.
void hide_front(float* scores, int end, const float* hidden) {
  for (int h = 0; h < 2; ++h) {
    const Vf limit = vload(hidden + h * kLanes);
    for (int j = 0; j < end; ++j) {
      float* at = scores + j * kWidth + h * kLanes;
      vstore(at, vselect(vless(vset(static_cast<float>(j)), limit), vset(-INFINITY), vload(at)));
    }
  }
}

void scale_output(float* output, int head_dim, const Vf* factor) {
  for (int d = 0; d < head_dim; ++d) {
    vstore(output + d * kWidth, vmul(vload(output + d * kWidth), factor[0]));
    vstore(output + d * kWidth + kLanes, vmul(vload(output + d * kWidth + kLanes), factor[1]));
  }
}

// What the lanes of a panel see of a block, counted from the block's first key on.
struct PanelView {
  float hidden[kWidth];   // keys before the first that is seen
  float visible[kWidth];  // keys up to the last, and one more
  int most_hidden;        // of `hidden`, 0 at least
  bool masked;            // whether some lane does not see the block's end
};

PanelView panel_view(const AttentionBlock& a, int panel, int begin, int n) {
  PanelView out;
  out.most_hidden = 0;
  out.masked = false;
  for (int r = 0; r < kWidth; ++r) {
    const int row = panel * kWidth + r;
    const bool used = row < a.n_rows;
    const int hidden = used ? first_key(a, row) - begin : 0;
    const int visible = used ? a.n_visible[row] - begin : 0;
    out.hidden[r] = static_cast<float>(hidden);
    out.visible[r] = static_cast<float>(visible);
    if (hidden > out.most_hidden) out.most_hidden = hidden;
    if (used && visible < n) out.masked = true;
  }
  if (out.most_hidden > n) out.most_hidden = n;
  return out;
}

// One block of n keys for one panel of queries; is_first: no block before it was this panel's.
void panel_step(const AttentionBlock& a, const Scratch& s, int panel, const BlockRows& rows,
                const RowFactors& factors, int n, bool is_first, const PanelView& view, PanelState& state) {
  const ptrdiff_t d = a.head_dim;
  const float* queries = s.queries + panel * d * kWidth;
  float* output = s.output + panel * d * kWidth;
  score_keys(s, queries, a.head_dim, n);
  finish_scores(a, s, queries, rows, factors, n);
  Vf rescale[2];
  if (view.most_hidden > 0) hide_front(s.scores, view.most_hidden, view.hidden);
  softmax_step(s.scores, n, view.visible, view.masked, state, rescale);
  if (is_first) {
    for (ptrdiff_t i = 0; i < d * kWidth; i += kLanes) vstore(output + i, vzero());
  } else {
    scale_output(output, a.head_dim, rescale);
  }
  if (factors.any)
    for (int j = 0; j < n; ++j) {
      float* row = s.scores + j * kWidth;
      const Vf factor = vset(factors.values[j]);
      vstore(row, vmul(vload(row), factor));
      vstore(row + kLanes, vmul(vload(row + kLanes), factor));
    }
  const int n_tiles = (a.head_dim + kTileRows - 1) / kTileRows;
  for (int t = 0, at = 0; t < n_tiles; ++t) {
    const int tile_rows = (a.head_dim - at + n_tiles - t - 1) / (n_tiles - t);
    tile({tile_rows, n, s.values + at, s.value_stride, s.scores, output + at * kWidth, kWidth, true});
    at += tile_rows;
  }
}

TRIPTYCH_INLINE void store_lanes(float* to, Vf v, int n) {
  if (n == kLanes) {
    vstore(to, v);
  } else {
    vstore_n(to, v, n);
  }
}

void store_panel(const AttentionBlock& a, const Scratch& s, int panel, const PanelState& state) {
  Vf factor[2];
  for (int h = 0; h < 2; ++h) {
    const auto none = vequal(state.sum[h], vzero());
    factor[h] = vselect(none, vzero(), vdiv(vset(1.0F), vselect(none, vset(1.0F), state.sum[h])));
  }
  float* output = s.output + static_cast<ptrdiff_t>(panel) * a.head_dim * kWidth;
  scale_output(output, a.head_dim, factor);
  // Columns to rows, kLanes dimensions at a time.
  const int first = panel * kWidth;
  const int n_rows = a.n_rows - first < kWidth ? a.n_rows - first : kWidth;
  for (int d = 0; d < a.head_dim; d += kLanes) {
    const int n = a.head_dim - d < kLanes ? a.head_dim - d : kLanes;
    for (int h = 0; h < 2; ++h) {
      Vf v[kLanes];
      // No zero is negative, as with few rows.
      for (int i = 0; i < kLanes; ++i)
        v[i] = i < n ? vadd(vload(output + (d + i) * kWidth + h * kLanes), vzero()) : vzero();
      vtranspose(v);
      for (int r = 0; r < kLanes && h * kLanes + r < n_rows; ++r)
        store_lanes(a.y[first + h * kLanes + r] + d, v[r], n);
    }
  }
}

// Where the first block of keys begins that a row sees. Blocks lie at multiples of their size whatever the
// rows are: the bits of a row do not depend on the rows beside it.
int first_block_of(const AttentionBlock& a, int n_keys) {
  int first = n_keys;
  for (int r = 0; r < a.n_rows; ++r)
    if (a.n_visible[r] > 0 && first_key(a, r) < first) first = first_key(a, r);
  return first / kKeyBlock * kKeyBlock;
}

void many_rows(const AttentionBlock& a, int n_keys) {
  const Scratch s = carve(a.scratch, a.head_dim);
  const int n_panels = (a.n_rows + kWidth - 1) / kWidth;
  PanelState state[kMaxPanels];
  int most_visible[kMaxPanels];
  int first_block[kMaxPanels];  // where the first block that a row sees begins
  for (int p = 0; p < n_panels; ++p) {
    const int first = p * kWidth;
    const int rows = a.n_rows - first < kWidth ? a.n_rows - first : kWidth;
    pack({reinterpret_cast<const void* const*>(a.q + first), rows, ElementType::kF32, 0, a.head_dim, a.scale,
          s.queries + static_cast<ptrdiff_t>(first) * a.head_dim, kWidth});
    for (int h = 0; h < 2; ++h) {
      state[p].max[h] = vset(-INFINITY);
      state[p].sum[h] = vzero();
    }
    most_visible[p] = 0;
    int first_seen = n_keys;
    for (int r = first; r < first + rows; ++r) {
      if (a.n_visible[r] > most_visible[p]) most_visible[p] = a.n_visible[r];
      if (a.n_visible[r] > 0 && first_key(a, r) < first_seen) first_seen = first_key(a, r);
    }
    first_block[p] = first_seen / kKeyBlock * kKeyBlock;
  }
  for (int begin = first_block_of(a, n_keys); begin < n_keys; begin += kKeyBlock) {
    const int n = n_keys - begin < kKeyBlock ? n_keys - begin : kKeyBlock;
    BlockRows rows;
    RowFactors factors;
    load_block(a, s, begin, n, rows, factors);
    for (int p = 0; p < n_panels; ++p) {
      if (most_visible[p] <= begin || begin < first_block[p]) continue;
      panel_step(a, s, p, rows, factors, n, begin == first_block[p], panel_view(a, p, begin, n), state[p]);
    }
  }
  for (int p = 0; p < n_panels; ++p) {
    if (most_visible[p] > 0) {
      store_panel(a, s, p, state[p]);
      continue;
    }
    for (int r = p * kWidth; r < a.n_rows && r < (p + 1) * kWidth; ++r)
      for (int d = 0; d < a.head_dim; ++d) a.y[r][d] = 0.0F;
  }
}

// Scores of R query rows with J keys, which are loaded once: J * R = 4 sums.
template <typename Row, int R, int J>
TRIPTYCH_INLINE void dot_rows(const float* q, ptrdiff_t stride, const Row* keys, int n, float* scores) {
  static_assert(R * J == 4);
  Vf acc[4];  // [J][R]
  TRIPTYCH_UNROLL
  for (int s = 0; s < 4; ++s) acc[s] = vzero();
  const auto step = [&](int i, int part) __attribute__((always_inline)) {
    TRIPTYCH_UNROLL
    for (int j = 0; j < J; ++j) {
      const Vf k = keys[j].at(i, part);
      TRIPTYCH_UNROLL
      for (int r = 0; r < R; ++r) acc[j * R + r] = vfma(vload(q + r * stride + i), k, acc[j * R + r]);
    }
  };
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, kLanes);
  if (i < n) step(i, n - i);  // zeros behind q
  float sums[4];
  vsum4(acc, sums);
  TRIPTYCH_UNROLL
  for (int j = 0; j < J; ++j) {
    TRIPTYCH_UNROLL
    for (int r = 0; r < R; ++r)
      scores[r * kKeyBlock + j] = Row::kHasFactor ? sums[j * R + r] * keys[j].factor : sums[j * R + r];
  }
}

// output of R rows += their weights times the values, V vectors of columns from `column` on. A block's sum
// begins at zero.
template <typename Row, int R, int V>
TRIPTYCH_INLINE void add_columns(const BlockRows& rows, int n, const float* weights, int column,
                                 int last_lanes, int head_dim, float* output, ptrdiff_t stride) {
  Vf acc[R][V];
  TRIPTYCH_UNROLL
  for (int r = 0; r < R; ++r) {
    TRIPTYCH_UNROLL
    for (int v = 0; v < V; ++v) acc[r][v] = vzero();
  }
  for (int j = 0; j < n; ++j) {
    const Row value(rows.values[j], head_dim);
    TRIPTYCH_UNROLL
    for (int v = 0; v < V; ++v) {
      const Vf x = v < V - 1 || last_lanes == kLanes ? value.at(column + v * kLanes, kLanes)
                                                     : value.at(column + v * kLanes, last_lanes);
      TRIPTYCH_UNROLL
      for (int r = 0; r < R; ++r) {
        const float w = weights[r * kKeyBlock + j];
        acc[r][v] = vfma(vset(Row::kHasFactor ? w * value.factor : w), x, acc[r][v]);
      }
    }
  }
  TRIPTYCH_UNROLL
  for (int r = 0; r < R; ++r) {
    TRIPTYCH_UNROLL
    for (int v = 0; v < V; ++v) {
      float* to = output + r * stride + column + v * kLanes;
      vstore(to, vadd(vload(to), acc[r][v]));
    }
  }
}

// All columns from `column` on: V vectors at a time, then fewer.
template <typename Row, int R, int V>
void add_values(const BlockRows& rows, int n, const float* weights, int column, int head_dim, float* output,
                ptrdiff_t stride) {
  for (; column + V * kLanes <= head_dim; column += V * kLanes)
    add_columns<Row, R, V>(rows, n, weights, column, kLanes, head_dim, output, stride);
  if constexpr (V > 1) {
    if (column < head_dim) add_values<Row, R, V / 2>(rows, n, weights, column, head_dim, output, stride);
  } else {
    if (column < head_dim)
      add_columns<Row, R, 1>(rows, n, weights, column, head_dim - column, head_dim, output, stride);
  }
}

// State of the few query rows: row r of each array.
struct FewRows {
  float* queries;  // [kAttentionFewRows][stride], scaled, zeros behind head_dim
  float* output;   // likewise
  float* weights;  // [kAttentionFewRows][kKeyBlock]
  ptrdiff_t stride;
  float top[kAttentionFewRows];
  float sum[kAttentionFewRows];
  // Rows of the block after the current one, to be asked for while this one is computed: pages end the
  // hardware's own streams.
  const BlockRows* next;
  int n_next;
  bool has_offsets;  // of the current block
  ptrdiff_t row_bytes;
};

TRIPTYCH_INLINE void prefetch_row(const FewRows& f, const void* const* rows, int j) {
  if (j >= f.n_next) return;
  for (ptrdiff_t at = 0; at < f.row_bytes; at += 64) prefetch_l2(static_cast<const char*>(rows[j]) + at);
}

// scores of a query += what the offsets of the keys' pages add.
inline void add_offsets(const BlockRows& rows, int n, const float* query, int head_dim, float* scores) {
  const KvOffset* seen = nullptr;
  float product = 0.0F;
  for (int j = 0; j < n; ++j) {
    if (rows.offsets[j] == nullptr) continue;
    if (rows.offsets[j] != seen) {
      seen = rows.offsets[j];
      product = offset_product(query, seen, head_dim);
    }
    scores[j] += product;
  }
}

// Scores of rows [r, r + R) with the n keys of a block; -infinity where a row does not see a key.
template <typename Key, int R>
void score_rows(const AttentionBlock& a, FewRows& f, const BlockRows& rows, int begin, int n, int r) {
  float* scores = f.weights + r * kKeyBlock;
  const float* queries = f.queries + r * f.stride;
  constexpr int kKeys = 4 / R;
  // Behind the last key the same key again: scores has room for it.
  for (int j = 0; j < n; j += kKeys) {
    if (r == 0)
      for (int i = j; i < j + kKeys; ++i) {
        prefetch_row(f, f.next->keys, i);
        prefetch_row(f, f.next->values, i);
      }
    const auto key = [&](int i) {
      const int at = j + i < n ? j + i : n - 1;
      return Key(rows.keys[at], a.head_dim);
    };
    if constexpr (kKeys == 1) {
      const Key keys[] = {key(0)};
      dot_rows<Key, R, kKeys>(queries, f.stride, keys, a.head_dim, scores + j);
    } else if constexpr (kKeys == 2) {
      const Key keys[] = {key(0), key(1)};
      dot_rows<Key, R, kKeys>(queries, f.stride, keys, a.head_dim, scores + j);
    } else {
      const Key keys[] = {key(0), key(1), key(2), key(3)};
      dot_rows<Key, R, kKeys>(queries, f.stride, keys, a.head_dim, scores + j);
    }
  }
  if (f.has_offsets)
    for (int i = 0; i < R; ++i)
      add_offsets(rows, n, queries + i * f.stride, a.head_dim, scores + i * kKeyBlock);
  for (int i = 0; i < R; ++i) {
    for (int j = a.n_visible[r + i] - begin > 0 ? a.n_visible[r + i] - begin : 0; j < n; ++j)
      scores[i * kKeyBlock + j] = -INFINITY;
    for (int j = 0; j < n && begin + j < first_key(a, r + i); ++j) scores[i * kKeyBlock + j] = -INFINITY;
  }
}

// The online softmax of row r: scores become weights, the earlier output is rescaled.
void soften_row(FewRows& f, int n, int r) {
  float* w = f.weights + r * kKeyBlock;
  Vf high = vset(f.top[r]);
  for (int j = n; j % kLanes != 0; ++j) w[j] = -INFINITY;  // kKeyBlock is a multiple of kLanes
  for (int j = 0; j < n; j += kLanes) high = vmax(high, vload(w + j));
  const float top = vmax_lane(high);
  const float shift = top == -INFINITY ? 0.0F : top;
  Vf total = vzero();
  for (int j = 0; j < n; j += kLanes) {
    const Vf p = vexp(vsub(vload(w + j), vset(shift)));
    vstore(w + j, p);
    total = vadd(total, p);
  }
  float change[kLanes];
  vstore(change, vexp(vset(f.top[r] - shift)));
  f.sum[r] = f.sum[r] * change[0] + vsum(total);
  f.top[r] = top;
  if (change[0] == 1.0F) return;
  const Vf c = vset(change[0]);
  float* output = f.output + r * f.stride;
  for (ptrdiff_t d = 0; d < f.stride; d += kLanes) vstore(output + d, vmul(c, vload(output + d)));
}

// One block of keys for rows [r, r + R).
template <typename Row, int R>
void few_rows_step(const AttentionBlock& a, FewRows& f, const BlockRows& rows, int begin, int n, int r) {
  constexpr int kVectors = kLanes == 16 ? (R == 4 ? 4 : 8) : 8 / R;  // R * kVectors accumulators
  score_rows<Row, R>(a, f, rows, begin, n, r);
  for (int i = r; i < r + R; ++i) soften_row(f, n, i);
  add_values<Row, R, kVectors>(rows, n, f.weights + r * kKeyBlock, 0, a.head_dim, f.output + r * f.stride,
                               f.stride);
}

template <typename Row>
void few_rows_block(const AttentionBlock& a, FewRows& f, const BlockRows& rows, int begin, int n) {
  int r = 0;
  for (; r + 4 <= a.n_rows; r += 4) few_rows_step<Row, 4>(a, f, rows, begin, n, r);
  for (; r + 2 <= a.n_rows; r += 2) few_rows_step<Row, 2>(a, f, rows, begin, n, r);
  if (r < a.n_rows) few_rows_step<Row, 1>(a, f, rows, begin, n, r);
}

void few_rows(const AttentionBlock& a, int n_keys) {
  FewRows f;
  f.stride = round_up(a.head_dim, 16);
  f.queries = a.scratch;
  f.output = f.queries + f.stride * kAttentionFewRows;
  f.weights = f.output + f.stride * kAttentionFewRows;
  for (int r = 0; r < a.n_rows; ++r) {
    f.top[r] = -INFINITY;
    f.sum[r] = 0.0F;
    for (ptrdiff_t d = 0; d < f.stride; ++d) {
      f.queries[r * f.stride + d] = d < a.head_dim ? a.scale * a.q[r][d] : 0.0F;
      f.output[r * f.stride + d] = 0.0F;
    }
  }
  f.row_bytes = a.kv.codec != nullptr ? kv_row_bytes(a.kv.code, a.head_dim)
                                      : a.head_dim * static_cast<ptrdiff_t>(element_bytes(a.kv.type));
  BlockRows blocks[2];
  const int first = first_block_of(a, n_keys);
  int n = n_keys - first < kKeyBlock ? n_keys - first : kKeyBlock;
  find_rows(a.kv, first, n, &blocks[0]);
  for (int begin = first, i = 0; begin < n_keys; begin += n, n = f.n_next, i ^= 1) {
    const int left = n_keys - begin - n;
    f.n_next = left < kKeyBlock ? left : kKeyBlock;
    find_rows(a.kv, begin + n, f.n_next, &blocks[i ^ 1]);
    f.next = &blocks[i ^ 1];
    const BlockRows& rows = blocks[i];
    f.has_offsets = has_offsets(rows, n);
    with_readers(a.kv, [&]<typename Row, bool>() { few_rows_block<Row>(a, f, rows, begin, n); });
  }
  for (int r = 0; r < a.n_rows; ++r) {
    const float factor = f.sum[r] == 0.0F ? 0.0F : 1.0F / f.sum[r];
    for (int d = 0; d < a.head_dim; ++d) a.y[r][d] = factor * f.output[r * f.stride + d] + 0.0F;
  }
}

void attention(const AttentionBlock& a) {
  int n_keys = 0;
  for (int r = 0; r < a.n_rows; ++r)
    if (a.n_visible[r] > n_keys) n_keys = a.n_visible[r];
  if (a.n_rows > kAttentionFewRows) return many_rows(a, n_keys);
  few_rows(a, n_keys);
}

}  // namespace
}  // namespace triptych::kernels
