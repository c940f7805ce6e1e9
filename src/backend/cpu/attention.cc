#include "backend/cpu/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "backend/cpu/attention_s8.h"
#include "base/allocation_trace.h"
#include "base/error.h"
#include "base/half.h"
#include "base/memory_pool.h"

namespace triptych::cpu {
namespace {

using kernels::kAttentionMaxRows;
using kernels::KvOffset;
constexpr int kMaxRows = std::max(kAttentionMaxRows, kS8AttentionMaxRows);

// Query rows of one key/value head: token t (of n_tokens) and each head of the group, heads inner.
struct QueryBlock {
  const TensorView* q;
  const TensorView* y;
  std::int64_t first_token;  // row of q and y
  std::int64_t n_tokens;
  std::int64_t group;  // query heads per key/value head
  std::int64_t kv_head;
  std::int64_t first_visible;  // keys the first token sees
  bool causal;                 // token i sees first_visible + i keys, else all see first_visible
  float scale;
  AttentionAlgorithm algorithm;  // kInt8: the rows of keys and values are
  std::int64_t window = 0;       // keys that a token sees at most, its last; 0: all
};

// Query rows of a block at most.
std::int64_t block_rows(const Runtime& runtime, AttentionAlgorithm algorithm) {
  if (algorithm == AttentionAlgorithm::kInt8) return kS8AttentionMaxRows;
  return runtime.attention.max_rows;
}

void run_block(const Runtime& runtime, const QueryBlock& b, const kernels::KeyValueRows& kv, float* scratch) {
  const float* q[kMaxRows];
  float* y[kMaxRows];
  std::int32_t n_visible[kMaxRows];
  std::int32_t first_visible[kMaxRows];
  const float* q0 = b.q->cf32();
  float* y0 = b.y->f32();
  const std::int64_t limit = block_rows(runtime, b.algorithm);
  int n = 0;
  // A group of more heads than that takes several rounds.
  for (std::int64_t i = 0; i < b.n_tokens * b.group; ++i) {
    const std::int64_t token = b.first_token + i / b.group;
    const std::int64_t head = b.kv_head * b.group + i % b.group;
    q[n] = q0 + token * b.q->stride(0) + head * b.q->stride(1);
    y[n] = y0 + token * b.y->stride(0) + head * b.y->stride(1);
    const std::int64_t visible = b.first_visible + (b.causal ? i / b.group : 0);
    n_visible[n] = static_cast<std::int32_t>(std::max<std::int64_t>(visible, 0));
    first_visible[n] = static_cast<std::int32_t>(std::max<std::int64_t>(visible - b.window, 0));
    ++n;
    if (n == limit || i + 1 == b.n_tokens * b.group) {
      const kernels::AttentionBlock block = {
          n,       static_cast<int>(b.q->dim(2)),         q, y, n_visible, b.scale, kv,
          scratch, b.window > 0 ? first_visible : nullptr};
      if (block_attention_algorithm(b.algorithm, n, runtime.policy) == AttentionAlgorithm::kInt8) {
        attention_s8(runtime, block);
      } else {
        runtime.attention.attention(block);
      }
      n = 0;
    }
  }
}

// Cuts the tokens of a sequence into blocks of nearly the same size. Blocks of 8-bit attention are larger
// where threads have enough of them: each packs the keys and values it sees.
class BlockSplit {
 public:
  BlockSplit(std::int64_t group, std::int64_t max_rows)
      : max_tokens_(std::max<std::int64_t>(1, max_rows / group)) {}
  explicit BlockSplit(std::int64_t max_tokens) : max_tokens_(max_tokens) {}

  std::int64_t max_tokens() const noexcept { return max_tokens_; }
  std::int64_t count(std::int64_t n_tokens) const noexcept { return ceil_div(n_tokens, max_tokens_); }
  std::int64_t begin(std::int64_t n_tokens, std::int64_t block) const noexcept {
    return block * n_tokens / count(n_tokens);
  }
  std::int64_t size(std::int64_t n_tokens, std::int64_t block) const noexcept {
    return begin(n_tokens, block + 1) - begin(n_tokens, block);
  }

 private:
  std::int64_t max_tokens_;
};

// `n_rows`: of all heads.
BlockSplit split_rows(const Runtime& runtime, std::int64_t group, std::int64_t n_rows,
                      AttentionAlgorithm algorithm) {
  constexpr std::int64_t kBlocksPerThread = 8;
  const std::int64_t most = block_rows(runtime, algorithm);
  if (algorithm == AttentionAlgorithm::kFloat) return {group, most};
  return {group, std::clamp<std::int64_t>(n_rows / (kBlocksPerThread * runtime.n_threads()),
                                          runtime.attention.max_rows, most)};
}

// Scratch memory of a block.
std::size_t block_scratch_floats(int head_dim, AttentionAlgorithm algorithm) {
  const auto floats = static_cast<std::size_t>(kernels::attention_scratch_floats(head_dim));
  if (algorithm == AttentionAlgorithm::kFloat) return floats;
  return std::max(floats, attention_s8_scratch_floats(head_dim));
}

// a * b; a cache that no machine can hold is an error, not an overflow.
std::size_t product_bytes(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > std::numeric_limits<std::size_t>::max() / 4)
    fail(ErrorCode::kOutOfMemory, "key/value cache: {} x {} bytes are too many", a, b);
  return product;
}

}  // namespace

CpuKvCache::CpuKvCache(const KvGeometry& g) : geometry_(g) {
  if (g.n_layers < 1 || g.n_kv_heads < 1 || g.head_dim < 1 || g.page_tokens < 1 || g.n_pages < 1)
    fail(ErrorCode::kInvalidArgument,
         "key/value cache: expected sizes >= 1, got {} layers, {} heads of {}, {} pages of {} tokens",
         g.n_layers, g.n_kv_heads, g.head_dim, g.n_pages, g.page_tokens);
  if (g.dtype == KvDType::kF16) type_ = ElementType::kF16;
  if (g.dtype == KvDType::kBF16) type_ = ElementType::kBF16;
  if (g.dtype == KvDType::kFp8) code_ = kernels::KvCode::kFp8;
  if (g.dtype == KvDType::kInt4) code_ = kernels::KvCode::kInt4;
  const auto row = static_cast<std::size_t>(kv_row_size_bytes(g.dtype, g.head_dim));
  if (quantized()) {
    if (g.head_dim > kernels::kKvMaxChannels)
      fail(ErrorCode::kUnsupported, "key/value cache: heads of {} channels; quantized ones have up to {}",
           g.head_dim, kernels::kKvMaxChannels);
    offset_bytes_ = kernels::kv_max_offsets(g.head_dim) * static_cast<std::ptrdiff_t>(sizeof(KvOffset));
  }
  const std::size_t values = product_bytes(row, static_cast<std::size_t>(g.page_tokens));
  const std::size_t head = 2 * values + static_cast<std::size_t>(offset_bytes_);
  const std::size_t layer = product_bytes(head, static_cast<std::size_t>(g.n_kv_heads));
  page_bytes_ = product_bytes(layer, static_cast<std::size_t>(g.n_layers));
  product_bytes(page_bytes_, static_cast<std::size_t>(g.n_pages));
  row_bytes_ = static_cast<std::ptrdiff_t>(row);
  layer_bytes_ = static_cast<std::ptrdiff_t>(layer);
  pages_.resize(static_cast<std::size_t>(g.n_pages), nullptr);
  if (page_bytes_ <= MemoryPool::kMaxObject_bytes) MemoryPool::process().add_size(page_bytes_);
}

CpuKvCache::~CpuKvCache() {
  for (std::byte* page : pages_)
    if (page != nullptr) MemoryPool::process().release(page);
}

void CpuKvCache::hold(std::span<const std::int32_t> slots) {
  for (const std::int32_t slot : slots) {
    std::byte*& page = pages_[static_cast<std::size_t>(slot / geometry_.page_tokens)];
    if (page != nullptr) continue;
    const AllocationScope scope(AllocationKind::kKvPage);
    page = MemoryPool::process().allocate(page_bytes_);
    // A sequence may begin in the middle of its page: no offsets then.
    for (int layer = 0; layer < geometry_.n_layers && offset_bytes_ > 0; ++layer)
      for (int h = 0; h < geometry_.n_kv_heads; ++h)
        std::memset(page + keys_in_page(layer, h) - offset_bytes_, 0,
                    static_cast<std::size_t>(offset_bytes_));
  }
}

void CpuKvCache::release_pages(std::span<const std::int32_t> pages) noexcept {
  for (const std::int32_t id : pages) {
    std::byte*& page = pages_[static_cast<std::size_t>(id)];
    if (page != nullptr) MemoryPool::process().release(page);
    page = nullptr;
  }
}

void CpuKvCache::copy_page(std::int32_t from, std::int32_t to) {
  const std::byte* source = pages_[static_cast<std::size_t>(from)];
  TRIPTYCH_CHECK(source != nullptr && from != to, "[copy_page] nothing was written to page {}", from);
  const std::int32_t slot[] = {to * geometry_.page_tokens};
  hold(slot);
  std::memcpy(pages_[static_cast<std::size_t>(to)], source, page_bytes_);
}

// Rows that nobody wrote hold what other sequences left in this memory.
void CpuKvCache::read_page(std::int32_t page, int n_rows, std::span<std::byte> to) const {
  const std::byte* source = pages_[static_cast<std::size_t>(page)];
  TRIPTYCH_CHECK(
      source != nullptr && to.size() == page_bytes_ && n_rows >= 0 && n_rows <= geometry_.page_tokens,
      "[read_page] page {}, {} rows, {} bytes", page, n_rows, to.size());
  std::memcpy(to.data(), source, page_bytes_);
  const auto rest = static_cast<std::size_t>((geometry_.page_tokens - n_rows) * row_bytes_);
  for (int layer = 0; layer < geometry_.n_layers; ++layer)
    for (int h = 0; h < geometry_.n_kv_heads; ++h)
      for (const std::ptrdiff_t rows : {keys_in_page(layer, h), values_in_page(layer, h)})
        std::memset(to.data() + rows + n_rows * row_bytes_, 0, rest);
}

void CpuKvCache::write_page(std::int32_t page, std::span<const std::byte> from) {
  TRIPTYCH_CHECK(from.size() == page_bytes_, "[write_page] {} bytes for a page of {}", from.size(),
                 page_bytes_);
  const std::int32_t slot[] = {page * geometry_.page_tokens};
  hold(slot);
  std::memcpy(pages_[static_cast<std::size_t>(page)], from.data(), page_bytes_);
}

std::ptrdiff_t CpuKvCache::keys_in_page(int layer, int head) const noexcept {
  return layer * layer_bytes_ + head * (offset_bytes_ + row_bytes_ * geometry_.page_tokens) + offset_bytes_;
}

std::ptrdiff_t CpuKvCache::values_in_page(int layer, int head) const noexcept {
  return layer * layer_bytes_ + geometry_.n_kv_heads * (offset_bytes_ + row_bytes_ * geometry_.page_tokens) +
         head * row_bytes_ * geometry_.page_tokens;
}

namespace {

// Where the blocks of all segments find keys and values: the operands themselves, or their 8-bit rows.
struct PlainRows {
  const char* k;
  const char* v;
  std::ptrdiff_t token_bytes;
  std::ptrdiff_t v_token_bytes;
  std::ptrdiff_t head_bytes;
  std::ptrdiff_t v_head_bytes;
  const kernels::KvRowKernels* codec = nullptr;

  kernels::KeyValueRows rows(std::int64_t token, std::int64_t head) const {
    return {k + token * token_bytes + head * head_bytes,
            v + token * v_token_bytes + head * v_head_bytes,
            token_bytes,
            v_token_bytes,
            nullptr,
            1,
            nullptr,
            0,
            0,
            ElementType::kF32,
            codec};
  }
};

// Tokens whose keys are summed at once. A mean is the sum of such sums, whatever the number of threads.
constexpr std::int64_t kMeanTokens = 64;

// The tokens of each segment in pieces of kMeanTokens, the last one shorter.
class MeanPieces {
 public:
  explicit MeanPieces(std::span<const std::int32_t> cu) : cu_(cu) {}

  std::int64_t count(std::size_t segment) const noexcept {
    return ceil_div(cu_[segment + 1] - cu_[segment], kMeanTokens);
  }
  std::int64_t count() const noexcept {
    std::int64_t n = 0;
    for (std::size_t s = 0; s + 1 < cu_.size(); ++s) n += count(s);
    return n;
  }
  /// Tokens of a piece; pieces are numbered through all segments.
  std::pair<std::int64_t, std::int64_t> tokens(std::int64_t piece) const noexcept {
    std::size_t s = 0;
    for (; piece >= count(s); ++s) piece -= count(s);
    const std::int64_t begin = cu_[s] + piece * kMeanTokens;
    return {begin, std::min<std::int64_t>(begin + kMeanTokens, cu_[s + 1])};
  }

 private:
  std::span<const std::int32_t> cu_;
};

// Keys and values as 8-bit rows, in the shared scratch: [token][head][row], keys before values. Keys lose the
// mean of their segment first: that moves all scores of a query alike, so the softmax does not change, and
// channels that are large in every key no longer take all levels (Zhang et al., "SageAttention",
// section 4.2). Loops go through whole tokens: one head of many tokens would use few sets of the caches.
PlainRows quantized_rows(Runtime& runtime, const AttentionArgs& args) {
  const std::int64_t n_heads = args.k.dim(1);
  const std::int64_t head_dim = args.k.dim(2);
  const std::int64_t n_tokens = args.k.dim(0);
  const std::int64_t width = n_heads * head_dim;
  const std::int64_t row_bytes = kernels::kv_row_bytes(kernels::KvCode::kInt8, head_dim);
  const std::int64_t all_bytes = n_tokens * n_heads * row_bytes;
  const MeanPieces pieces(args.cu_k);
  const auto n_segments = static_cast<std::int64_t>(args.cu_k.size()) - 1;
  const std::int64_t mean_stride = ceil_div(width, 2) * 2;  // bfloat16, whole floats
  float* memory = runtime.shared_scratch(static_cast<std::size_t>(
      ceil_div(2 * all_bytes, 4) + pieces.count() * width + n_segments * mean_stride / 2));
  auto* keys = reinterpret_cast<std::uint8_t*>(memory);
  std::uint8_t* values = keys + all_bytes;
  float* sums = memory + ceil_div(2 * all_bytes, 4);                              // [piece][width]
  auto* means = reinterpret_cast<std::uint16_t*>(sums + pieces.count() * width);  // [segment][mean_stride]
  const auto rows_of = [](const TensorView& x) {
    return [data = x.cf32(), stride = x.stride(0), head_stride = x.stride(1)](
               std::int64_t token, std::int64_t head) { return data + token * stride + head * head_stride; };
  };
  const auto key = rows_of(args.k);
  const auto value = rows_of(args.v);

  runtime.parallel_each(pieces.count(), [&](std::int64_t piece, int) {
    const auto [begin, end] = pieces.tokens(piece);
    float* sum = sums + piece * width;
    std::fill(sum, sum + width, 0.0F);
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t head = 0; head < n_heads; ++head)
        runtime.pointwise.add(head_dim, sum + head * head_dim, key(t, head), sum + head * head_dim);
  });
  float* sum = sums;
  for (std::size_t s = 0; s < static_cast<std::size_t>(n_segments); ++s) {
    const std::int64_t n_pieces = pieces.count(s);
    for (std::int64_t i = 1; i < n_pieces; ++i) runtime.pointwise.add(width, sum, sum + i * width, sum);
    const auto n = static_cast<float>(args.cu_k[s + 1] - args.cu_k[s]);
    std::uint16_t* mean = means + static_cast<std::int64_t>(s) * mean_stride;
    for (std::int64_t d = 0; n_pieces > 0 && d < width; ++d) mean[d] = f32_to_bf16(sum[d] / n);
    sum += n_pieces * width;
  }
  runtime.parallel(n_tokens, width * 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::size_t s = 0;
    for (std::int64_t t = begin; t < end; ++t) {
      while (t >= args.cu_k[s + 1]) ++s;
      const std::uint16_t* mean = means + static_cast<std::int64_t>(s) * mean_stride;
      for (std::int64_t head = 0; head < n_heads; ++head) {
        const std::int64_t at = (t * n_heads + head) * row_bytes;
        runtime.kv_rows.encode(kernels::KvCode::kInt8, head_dim, key(t, head), mean + head * head_dim,
                               keys + at);
        runtime.kv_rows.encode(kernels::KvCode::kInt8, head_dim, value(t, head), nullptr, values + at);
      }
    }
  });
  return {reinterpret_cast<const char*>(keys),
          reinterpret_cast<const char*>(values),
          n_heads * row_bytes,
          n_heads * row_bytes,
          row_bytes,
          row_bytes,
          &runtime.kv_rows};
}

PlainRows float_rows(const AttentionArgs& args) {
  return {reinterpret_cast<const char*>(args.k.cf32()),
          reinterpret_cast<const char*>(args.v.cf32()),
          args.k.stride(0) * 4,
          args.v.stride(0) * 4,
          args.k.stride(1) * 4,
          args.v.stride(1) * 4};
}

}  // namespace

void attention(Runtime& runtime, const AttentionArgs& args, const TensorView& y) {
  const std::int64_t n_kv_heads = args.k.dim(1);
  const std::int64_t group = args.q.dim(1) / n_kv_heads;
  const std::size_t n_segments = args.cu_q.size() - 1;
  const auto n_queries = [&](std::size_t s) -> std::int64_t { return args.cu_q[s + 1] - args.cu_q[s]; };
  const auto n_keys = [&](std::size_t s) -> std::int64_t { return args.cu_k[s + 1] - args.cu_k[s]; };
  const auto algorithm_of = [&](std::size_t s) {
    return segment_attention_algorithm(n_queries(s) * group, n_keys(s), runtime.features, runtime.policy);
  };
  bool any_int8 = false;
  for (std::size_t s = 0; s < n_segments; ++s)
    any_int8 = any_int8 || algorithm_of(s) == AttentionAlgorithm::kInt8;
  const std::int64_t n_rows = args.q.dim(0) * args.q.dim(1);
  const BlockSplit in_floats = split_rows(runtime, group, n_rows, AttentionAlgorithm::kFloat);
  const BlockSplit in_int8 = split_rows(runtime, group, n_rows, AttentionAlgorithm::kInt8);
  const auto split_of = [&](std::size_t s) -> const BlockSplit& {
    return algorithm_of(s) == AttentionAlgorithm::kInt8 ? in_int8 : in_floats;
  };
  std::int64_t n_blocks = 0;
  for (std::size_t s = 0; s < n_segments; ++s) n_blocks += split_of(s).count(n_queries(s));
  const PlainRows floats = float_rows(args);
  const PlainRows bytes = any_int8 ? quantized_rows(runtime, args) : floats;
  runtime.reserve_thread_scratch(block_scratch_floats(
      static_cast<int>(args.q.dim(2)), any_int8 ? AttentionAlgorithm::kInt8 : AttentionAlgorithm::kFloat));
  runtime.parallel_each(n_blocks * n_kv_heads, [&](std::int64_t index, int thread) {
    const std::int64_t head = index % n_kv_heads;
    std::int64_t block = index / n_kv_heads;
    std::size_t s = 0;
    for (; block >= split_of(s).count(n_queries(s)); ++s) block -= split_of(s).count(n_queries(s));
    const BlockSplit& split = split_of(s);
    const AttentionAlgorithm algorithm = algorithm_of(s);
    const std::int64_t begin = split.begin(n_queries(s), block);
    const PlainRows& operands = algorithm == AttentionAlgorithm::kInt8 ? bytes : floats;
    run_block(
        runtime,
        {&args.q, &y, args.cu_q[s] + begin, split.size(n_queries(s), block), group, head,
         args.causal ? n_keys(s) - n_queries(s) + begin + 1 : n_keys(s), args.causal, args.scale, algorithm},
        operands.rows(args.cu_k[s], head), runtime.thread_scratch(thread));
  });
}

namespace {

// What is written: rows of one layer.
struct Append {
  const CpuKvCache* cache;
  int layer;
  const TensorView* k;
  const TensorView* v;
  std::span<const std::int32_t> slots;

  std::byte* page_at(std::int64_t t) const {
    return cache->page_data()[slots[static_cast<std::size_t>(t)] / cache->geometry().page_tokens];
  }
  std::int64_t row_in_page(std::int64_t t) const {
    return slots[static_cast<std::size_t>(t)] % cache->geometry().page_tokens;
  }
  const float* key(std::int64_t t, int head) const {
    return k->cf32() + t * k->stride(0) + head * k->stride(1);
  }
  const float* value(std::int64_t t, int head) const {
    return v->cf32() + t * v->stride(0) + head * v->stride(1);
  }
};

// Token t quantized. Its page's offsets were chosen before. `rest` [head_dim] is room for a key without them.
void append_quantized(const Runtime& runtime, const Append& a, std::int64_t t, float* rest) {
  const CpuKvCache& cache = *a.cache;
  const int head_dim = cache.geometry().head_dim;
  const std::ptrdiff_t at = a.row_in_page(t) * cache.row_bytes();
  for (int h = 0; h < cache.geometry().n_kv_heads; ++h) {
    std::byte* keys = a.page_at(t) + cache.keys_in_page(a.layer, h);
    std::byte* values = a.page_at(t) + cache.values_in_page(a.layer, h);
    const std::span<const KvOffset> offsets = cache.offsets_before(keys);
    const float* key = a.key(t, h);
    if (!offsets.empty() && offsets.front().value != 0) {
      std::copy(key, key + head_dim, rest);
      for (const KvOffset& offset : offsets) rest[offset.channel] -= bf16_to_f32(offset.value);
      key = rest;
    }
    runtime.kv_rows.encode(cache.code(), head_dim, key, nullptr, reinterpret_cast<std::uint8_t*>(keys + at));
    runtime.kv_rows.encode(cache.code(), head_dim, a.value(t, h), nullptr,
                           reinterpret_cast<std::uint8_t*>(values + at));
  }
}

void append_elements(const Runtime& runtime, const Append& a, std::int64_t t) {
  const CpuKvCache& cache = *a.cache;
  const int head_dim = cache.geometry().head_dim;
  std::byte* row = a.page_at(t) + a.row_in_page(t) * cache.row_bytes();
  for (int h = 0; h < cache.geometry().n_kv_heads; ++h) {
    runtime.rows.narrow(cache.type(), head_dim, a.key(t, h), row + cache.keys_in_page(a.layer, h));
    runtime.rows.narrow(cache.type(), head_dim, a.value(t, h), row + cache.values_in_page(a.layer, h));
  }
}

// A page's first key decides its offsets, however the tokens are cut into steps.
void choose_offsets(const Runtime& runtime, const Append& a) {
  const CpuKvCache& cache = *a.cache;
  for (std::int64_t t = 0; t < a.k->dim(0); ++t) {
    if (a.row_in_page(t) != 0) continue;
    for (int h = 0; h < cache.geometry().n_kv_heads; ++h)
      runtime.kv_rows.choose_offsets(
          cache.geometry().head_dim, a.key(t, h),
          cache.offsets_before(a.page_at(t) + cache.keys_in_page(a.layer, h)).data());
  }
}

}  // namespace

void kv_append(Runtime& runtime, CpuKvCache& cache, int layer, const TensorView& k, const TensorView& v,
               std::span<const std::int32_t> slots) {
  cache.hold(slots);
  const Append append{&cache, layer, &k, &v, slots};
  if (cache.offset_bytes() > 0) choose_offsets(runtime, append);
  runtime.reserve_thread_scratch(static_cast<std::size_t>(cache.geometry().head_dim));
  const std::int64_t cost_bytes = k.dim(1) * k.dim(2) * 16;
  runtime.parallel(k.dim(0), cost_bytes, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t t = begin; t < end; ++t)
      cache.quantized() ? append_quantized(runtime, append, t, runtime.thread_scratch(thread))
                        : append_elements(runtime, append, t);
  });
}

PagedPlan plan_paged_attention(const Runtime& runtime, const CpuKvCache& cache,
                               std::span<const KvSequence> sequences, const TensorView& q) {
  const KvGeometry& g = cache.geometry();
  PagedPlan out;
  out.group = q.dim(1) / g.n_kv_heads;
  out.algorithm =
      paged_attention_algorithm(g.dtype == KvDType::kInt8, out.group, runtime.features, runtime.policy);
  const BlockSplit split = split_rows(runtime, out.group, q.dim(0) * q.dim(1), out.algorithm);
  out.max_tokens = split.max_tokens();
  for (const KvSequence& s : sequences) out.n_blocks += split.count(s.n_rows);
  out.scratch_floats = block_scratch_floats(g.head_dim, out.algorithm);
  return out;
}

void paged_attention(Runtime& runtime, const CpuKvCache& cache, int layer,
                     std::span<const KvSequence> sequences, const CacheAttention& how, const TensorView& q,
                     const TensorView& y, const PagedPlan& plan) {
  const KvGeometry& g = cache.geometry();
  const std::int64_t group = plan.group;
  for (const KvSequence& s : sequences)
    for (std::int64_t i = 0; i < ceil_div(s.n_context, g.page_tokens); ++i)
      TRIPTYCH_CHECK(cache.page_data()[s.pages[static_cast<std::size_t>(i)]] != nullptr,
                     "[paged_attention] nothing was written to page {}",
                     s.pages[static_cast<std::size_t>(i)]);
  const BlockSplit split(plan.max_tokens);
  runtime.reserve_thread_scratch(plan.scratch_floats);
  runtime.parallel_each(plan.n_blocks * g.n_kv_heads, [&](std::int64_t index, int thread) {
    const int head = static_cast<int>(index % g.n_kv_heads);
    std::int64_t block = index / g.n_kv_heads;
    const KvSequence* s = sequences.data();
    for (; block >= split.count(s->n_rows); ++s) block -= split.count(s->n_rows);
    const std::int64_t begin = split.begin(s->n_rows, block);
    const kernels::KeyValueRows kv = {nullptr,
                                      nullptr,
                                      cache.row_bytes(),
                                      cache.row_bytes(),
                                      s->pages.data(),
                                      g.page_tokens,
                                      reinterpret_cast<const char* const*>(cache.page_data()),
                                      cache.keys_in_page(layer, head),
                                      cache.values_in_page(layer, head),
                                      cache.type(),
                                      cache.quantized() ? &runtime.kv_rows : nullptr,
                                      cache.code(),
                                      cache.offset_bytes()};
    run_block(runtime,
              {&q, &y, s->first_row + begin, split.size(s->n_rows, block), group, head,
               s->n_context - s->n_rows + begin + 1, true, how.scale, plan.algorithm, how.window},
              kv, runtime.thread_scratch(thread));
  });
}

}  // namespace triptych::cpu
