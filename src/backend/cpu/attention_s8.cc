#include "backend/cpu/attention_s8.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/cpu/kernels/tiles/tile_scope.h"
#include "base/half.h"

namespace triptych::cpu {
namespace {

using kernels::AttentionBlock;
using kernels::kS8ChunkKeys;
using kernels::kS8MaxRows;
using kernels::kS8PanelWidth;

static_assert(kS8MaxRows == kernels::kS8AttentionRows);  // for arrays; tiles have what both kernels take
constexpr int kStripRows = 32;                           // that kernels of tiles take at once
static_assert(kS8AttentionMaxRows % kStripRows == 0);
constexpr float kLog2E = 1.44269504F;
constexpr std::int64_t kPanelsPerChunk = kS8ChunkKeys / kS8PanelWidth;

std::int64_t round_up(std::int64_t n, std::int64_t to) { return ceil_div(n, to) * to; }

// Pieces of the scratch memory, all multiples of 64 bytes, for kS8AttentionMaxRows rows.
struct Scratch {
  std::int64_t q_stride;  // bytes of a quantized query row
  std::int64_t width;     // columns of the output, a multiple of 64
  std::int8_t* q;         // [rows][q_stride], for kernels of tiles in tile order
  float* q_scales;        // [rows], the softmax's scale in them, for logarithms to base 2
  std::int32_t* q_sums;   // [rows]
  float* tops;            // [rows]
  float* sums;            // [rows]
  float* output;          // [rows][width]
  std::uint8_t* keys;     // [4] panels
  std::int8_t* values;    // [width / 64] panels
  float* key_scales;      // [256]
  float* value_scales;    // [256]
  float* scores;          // [6][256], with tiles [32][256]
  std::uint8_t* high;     // the same
  std::uint8_t* low;
  std::int64_t n_floats = 0;  // of all pieces

  Scratch(float* memory, int head_dim)
      : q_stride(round_up(head_dim, 64)), width(round_up(head_dim, kS8PanelWidth)) {
    // Without memory only n_floats is of use.
    const auto take = [this, memory](std::int64_t n_bytes) {
      float* const out = memory != nullptr ? memory + n_floats : nullptr;
      n_floats += round_up(n_bytes, 64) / 4;
      return out;
    };
    q = reinterpret_cast<std::int8_t*>(take(kS8AttentionMaxRows * q_stride));
    q_scales = take(4 * kS8AttentionMaxRows);
    q_sums = reinterpret_cast<std::int32_t*>(take(4 * kS8AttentionMaxRows));
    tops = take(4 * kS8AttentionMaxRows);
    sums = take(4 * kS8AttentionMaxRows);
    output = take(4 * kS8AttentionMaxRows * width);
    keys = reinterpret_cast<std::uint8_t*>(take(kPanelsPerChunk * kernels::s8_panel_bytes(head_dim)));
    values = reinterpret_cast<std::int8_t*>(take(width * kS8ChunkKeys));
    static_assert(kS8ChunkKeys % 64 == 0);  // tiles read whole steps of a panel
    key_scales = take(4 * kS8ChunkKeys);
    value_scales = take(4 * kS8ChunkKeys);
    scores = take(4 * kStripRows * kS8ChunkKeys);
    high = reinterpret_cast<std::uint8_t*>(take(kStripRows * kS8ChunkKeys));
    low = reinterpret_cast<std::uint8_t*>(take(kStripRows * kS8ChunkKeys));
  }
};

// Keys [begin, begin + n) in panels, and what their pages' offsets add to scores.
struct Chunk {
  int begin;
  int n;
  int n_runs;
  struct Run {  // keys of a page that has offsets
    int begin;
    int n;
    const kernels::KvOffset* offsets;
  } runs[kS8ChunkKeys];
};

// Null: none.
const kernels::KvOffset* offsets_of(const AttentionBlock& a, const void* first_row) {
  if (a.kv.offset_bytes == 0) return nullptr;
  const auto* offsets =
      reinterpret_cast<const kernels::KvOffset*>(static_cast<const char*>(first_row) - a.kv.offset_bytes);
  return offsets->value != 0 ? offsets : nullptr;
}

float scale_at(const char* row, std::int64_t at) {
  std::uint16_t bits;
  std::memcpy(&bits, row + at, sizeof bits);
  return bf16_to_f32(bits);
}

// Neighbouring rows of keys and values.
struct RowRun {
  const char* key;
  const char* value;
  int n;
  const char* page;  // its first row of keys
};

// Rows [t, end), as far as they are in one page.
RowRun rows_at(const kernels::KeyValueRows& kv, int t, int end) {
  if (kv.pages == nullptr) return {kv.k + t * kv.k_stride, kv.v + t * kv.v_stride, end - t, nullptr};
  const int row = t % kv.page_tokens;
  const char* page = kv.page_data[kv.pages[t / kv.page_tokens]];
  return {page + kv.k_in_page + row * kv.k_stride, page + kv.v_in_page + row * kv.v_stride,
          std::min(end - t, static_cast<int>(kv.page_tokens) - row), page + kv.k_in_page};
}

void load_chunk(const Runtime& runtime, const AttentionBlock& a, Scratch& s, Chunk& chunk) {
  const void* keys[kS8ChunkKeys];
  const void* values[kS8ChunkKeys];
  const auto& kv = a.kv;
  const std::int64_t at_scale = kernels::kv_scale_at(a.head_dim);
  chunk.n_runs = 0;
  for (int j = 0; j < chunk.n;) {
    RowRun run = rows_at(kv, chunk.begin + j, chunk.begin + chunk.n);
    if (const kernels::KvOffset* offsets = offsets_of(a, run.page); offsets != nullptr)
      chunk.runs[chunk.n_runs++] = {j, run.n, offsets};
    for (int i = 0; i < run.n; ++i, ++j, run.key += kv.k_stride, run.value += kv.v_stride) {
      keys[j] = run.key;
      values[j] = run.value;
      s.key_scales[j] = scale_at(run.key, at_scale);
      s.value_scales[j] = scale_at(run.value, at_scale);
    }
  }
  std::fill(s.key_scales + chunk.n, s.key_scales + kS8ChunkKeys, 0.0F);
  std::fill(s.value_scales + chunk.n, s.value_scales + kS8ChunkKeys, 0.0F);
  for (int p = 0; p * kS8PanelWidth < chunk.n; ++p)
    runtime.attention_s8.pack_keys({std::min(kS8PanelWidth, chunk.n - p * kS8PanelWidth), a.head_dim,
                                    keys + p * kS8PanelWidth,
                                    s.keys + p * kernels::s8_panel_bytes(a.head_dim)});
  for (int column = 0; column < a.head_dim; column += kS8PanelWidth)
    runtime.attention_s8.pack_values(
        {chunk.n, a.head_dim, column, values, s.values + std::int64_t{column} * kS8ChunkKeys});
}

// scores += q offset
void add_offsets(const AttentionBlock& a, const Chunk& chunk, int n, int row, float* scores) {
  for (int i = 0; i < chunk.n_runs && chunk.runs[i].begin < n; ++i) {
    const Chunk::Run& run = chunk.runs[i];
    float product = 0;
    for (int e = 0; e < kernels::kv_max_offsets(a.head_dim) && run.offsets[e].value != 0; ++e)
      product += a.q[row][run.offsets[e].channel] * bf16_to_f32(run.offsets[e].value);
    product *= a.scale * kLog2E;
    for (int j = run.begin; j < std::min(run.begin + run.n, n); ++j) scores[j] += product;
  }
}

int first_key(const AttentionBlock& a, int row) {
  return a.first_visible != nullptr ? a.first_visible[row] : 0;
}

// One row's scores of a chunk: with offsets, and without the keys before its window. Returns how many of them
// it sees, from the chunk's first on; 0 where the chunk lies before its window.
int finish_scores(const AttentionBlock& a, const Chunk& chunk, int most, int row, float* scores) {
  const int n_visible = std::clamp(a.n_visible[row] - chunk.begin, 0, most);
  add_offsets(a, chunk, most, row, scores);
  const int n_hidden = std::clamp(first_key(a, row) - chunk.begin, 0, n_visible);
  std::fill(scores, scores + n_hidden, -std::numeric_limits<float>::infinity());
  return n_hidden == n_visible ? 0 : n_visible;
}

// Query rows [row, row + n_rows) over a chunk.
void tile_step(const Runtime& runtime, const AttentionBlock& a, const Scratch& s, const Chunk& chunk, int row,
               int n_rows) {
  int most = 0;
  for (int r = row; r < row + n_rows; ++r) most = std::max(most, a.n_visible[r] - chunk.begin);
  most = std::min(most, chunk.n);
  if (most <= 0) return;
  for (int p = 0; p * kS8PanelWidth < most; ++p)
    runtime.gemm_s8.tile({n_rows, kernels::s8_quads(a.head_dim), s.q + row * s.q_stride, s.q_stride,
                          s.keys + p * kernels::s8_panel_bytes(a.head_dim), s.q_scales + row, s.q_sums + row,
                          s.key_scales + p * kS8PanelWidth, s.scores + p * kS8PanelWidth, kS8ChunkKeys});
  const int n = static_cast<int>(round_up(most, 4));
  float weight_scales[kS8MaxRows];
  float rescales[kS8MaxRows];
  std::int32_t n_visible[kS8MaxRows];
  for (int r = 0; r < n_rows; ++r) {
    n_visible[r] = finish_scores(a, chunk, most, row + r, s.scores + r * kS8ChunkKeys);
  }
  const bool has_low =
      runtime.attention_s8.soften({n_rows, n, n_visible, s.scores, s.value_scales, s.tops + row, s.sums + row,
                                   s.high, s.low, weight_scales, rescales});
  for (std::int64_t column = 0; column < s.width; column += kS8PanelWidth)
    runtime.attention_s8.accumulate({n_rows, n / 4, s.high, has_low ? s.low : nullptr, kS8ChunkKeys,
                                     s.values + column * kS8ChunkKeys, weight_scales, rescales,
                                     s.output + row * s.width + column, s.width});
}

// The same with kernels of tiles, for up to kStripRows rows from a multiple of 16 on. The softmax takes as
// many rows at once as its kernel does.
void strip_step(const Runtime& runtime, const AttentionBlock& a, const Scratch& s, const Chunk& chunk,
                int row, int n_rows) {
  int most = 0;
  for (int r = row; r < row + n_rows; ++r) most = std::max(most, a.n_visible[r] - chunk.begin);
  most = std::min(most, chunk.n);
  if (most <= 0) return;
  for (int p = 0; p * kS8PanelWidth < most; ++p)
    runtime.gemm_s8_tiles->tile({n_rows, kernels::s8_quads(a.head_dim), s.q + row * s.q_stride, s.q_stride,
                                 s.keys + p * kernels::s8_panel_bytes(a.head_dim), s.q_scales + row,
                                 s.q_sums + row, s.key_scales + p * kS8PanelWidth,
                                 s.scores + p * kS8PanelWidth, kS8ChunkKeys});
  const int n = static_cast<int>(round_up(most, 4));
  const int n_whole = static_cast<int>(round_up(n, 64));
  float weight_scales[kStripRows];
  float rescales[kStripRows];
  std::int32_t n_visible[kStripRows];
  for (int r = 0; r < n_rows; ++r) {
    n_visible[r] = finish_scores(a, chunk, most, row + r, s.scores + r * kS8ChunkKeys);
  }
  bool has_low = false;
  bool low_rows[kStripRows] = {};
  for (int r = 0; r < n_rows; r += runtime.attention_s8.max_rows) {
    const int end = std::min(n_rows, r + runtime.attention_s8.max_rows);
    const bool low =
        runtime.attention_s8.soften({end - r, n, n_visible + r, s.scores + r * kS8ChunkKeys, s.value_scales,
                                     s.tops + row + r, s.sums + row + r, s.high + r * kS8ChunkKeys,
                                     s.low + r * kS8ChunkKeys, weight_scales + r, rescales + r});
    std::fill(low_rows + r, low_rows + end, low);
    has_low = has_low || low;
  }
  for (int r = 0; r < n_rows; ++r) {
    std::uint8_t* high = s.high + r * kS8ChunkKeys;
    std::uint8_t* low = s.low + r * kS8ChunkKeys;
    std::fill(high + n, high + n_whole, std::uint8_t{0});
    if (has_low) std::fill(low_rows[r] ? low + n : low, low + n_whole, std::uint8_t{0});
  }
  for (std::int64_t column = 0; column < s.width; column += kS8PanelWidth)
    runtime.attention_s8_tiles->accumulate({n_rows, n / 4, s.high, has_low ? s.low : nullptr, kS8ChunkKeys,
                                            s.values + column * kS8ChunkKeys, weight_scales, rescales,
                                            s.output + row * s.width + column, s.width});
}

// Rows of q in tile order stand in blocks of 16; those that are not there are zeros.
void quantize_queries_in_tiles(const Runtime& runtime, const AttentionBlock& a, const Scratch& s) {
  const auto quads = kernels::s8_quads(a.head_dim);
  constexpr int kHeight = kernels::kTileHeight;
  if (const int left = a.n_rows % kHeight; left > 0)
    std::fill_n(s.q + (a.n_rows - left) * s.q_stride, kHeight * s.q_stride, std::int8_t{0});
  for (int r = 0; r < a.n_rows; ++r)
    runtime.gemm_s8_tiles->quantize(
        {a.head_dim, a.q[r], s.q + r / kHeight * kHeight * s.q_stride + r % kHeight * kernels::kTileRow_bytes,
         s.q_scales + r, s.q_sums + r, nullptr, quads});
}

void quantize_queries(const Runtime& runtime, const AttentionBlock& a, const Scratch& s, bool tiles) {
  if (tiles) quantize_queries_in_tiles(runtime, a, s);
  for (int r = 0; r < a.n_rows; ++r) {
    std::int8_t* q = s.q + r * s.q_stride;
    if (!tiles) runtime.gemm_s8.quantize({a.head_dim, a.q[r], q, s.q_scales + r, s.q_sums + r});
    s.q_scales[r] *= a.scale * kLog2E;
    s.tops[r] = -std::numeric_limits<float>::infinity();
    s.sums[r] = 0;
  }
  std::fill(s.output, s.output + a.n_rows * s.width, 0.0F);
}

}  // namespace

std::size_t attention_s8_scratch_floats(int head_dim) {
  return static_cast<std::size_t>(Scratch(nullptr, head_dim).n_floats);
}

void attention_s8(const Runtime& runtime, const AttentionBlock& a) {
  Scratch s(a.scratch, a.head_dim);
  const bool tiles = runtime.attention_s8_tiles != nullptr && runtime.gemm_s8_tiles != nullptr &&
                     a.n_rows >= runtime.tuning.tile_rows;
  const kernels::TileScope scope(tiles ? runtime.attention_s8_tiles->tiles : nullptr);
  quantize_queries(runtime, a, s, tiles);
  const int n_keys = *std::max_element(a.n_visible, a.n_visible + a.n_rows);
  const int tile_rows = std::min(runtime.gemm_s8.max_rows, runtime.attention_s8.max_rows);
  const int n_tiles = static_cast<int>(ceil_div(a.n_rows, tile_rows));
  // Chunks lie at multiples of their size whatever the rows see.
  int first = n_keys;
  for (int r = 0; r < a.n_rows; ++r)
    if (a.n_visible[r] > 0) first = std::min(first, first_key(a, r));
  Chunk chunk;
  for (chunk.begin = first / kS8ChunkKeys * kS8ChunkKeys; chunk.begin < n_keys; chunk.begin += kS8ChunkKeys) {
    chunk.n = std::min(kS8ChunkKeys, n_keys - chunk.begin);
    load_chunk(runtime, a, s, chunk);
    if (tiles) {
      for (int row = 0; row < a.n_rows; row += kStripRows)
        strip_step(runtime, a, s, chunk, row, std::min(kStripRows, a.n_rows - row));
      continue;
    }
    for (int t = 0; t < n_tiles; ++t) {
      const int row = t * a.n_rows / n_tiles;
      tile_step(runtime, a, s, chunk, row, (t + 1) * a.n_rows / n_tiles - row);
    }
  }
  for (int r = 0; r < a.n_rows; ++r) {
    const float factor = s.sums[r] == 0.0F ? 0.0F : 1.0F / s.sums[r];
    runtime.pointwise.scale(a.head_dim, factor, s.output + r * s.width, a.y[r]);
  }
}

}  // namespace triptych::cpu
