#include "backend/cpu/attention.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace triptych::cpu {
namespace {

using kernels::kAttentionMaxRows;

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
};

void run_block(const Runtime& runtime, const QueryBlock& b, const kernels::KeyValueRows& kv, float* scratch) {
  const float* q[kAttentionMaxRows];
  float* y[kAttentionMaxRows];
  std::int32_t n_visible[kAttentionMaxRows];
  const float* q0 = b.q->cf32();
  float* y0 = b.y->f32();
  int n = 0;
  // A group of more than kAttentionMaxRows heads takes several rounds.
  for (std::int64_t i = 0; i < b.n_tokens * b.group; ++i) {
    const std::int64_t token = b.first_token + i / b.group;
    const std::int64_t head = b.kv_head * b.group + i % b.group;
    q[n] = q0 + token * b.q->stride(0) + head * b.q->stride(1);
    y[n] = y0 + token * b.y->stride(0) + head * b.y->stride(1);
    const std::int64_t visible = b.first_visible + (b.causal ? i / b.group : 0);
    n_visible[n] = static_cast<std::int32_t>(std::max<std::int64_t>(visible, 0));
    ++n;
    if (n == kAttentionMaxRows || i + 1 == b.n_tokens * b.group) {
      runtime.attention.attention({n, static_cast<int>(b.q->dim(2)), q, y, n_visible, b.scale, kv, scratch});
      n = 0;
    }
  }
}

// Tokens of a block: as many as fill the rows of one call.
std::int64_t block_tokens(std::int64_t group) { return std::max<std::int64_t>(1, kAttentionMaxRows / group); }

Buffer map_zeros(std::size_t size_bytes) {
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    fail(ErrorCode::kOutOfMemory, "no memory for a key/value cache of {} bytes", size_bytes);
#if defined(MADV_HUGEPAGE)
  madvise(memory, size_bytes, MADV_HUGEPAGE);
#endif
  const std::shared_ptr<const void> owner(
      memory, [size_bytes](const void* p) { munmap(const_cast<void*>(p), size_bytes); });
  return Buffer::wrap(owner, memory, size_bytes);
}

// a * b; a cache that no machine can hold is an error, not an overflow.
std::size_t product_bytes(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > std::numeric_limits<std::size_t>::max() / 4)
    fail(ErrorCode::kOutOfMemory, "key/value cache: {} x {} bytes are too many", a, b);
  return product;
}

}  // namespace

CpuKvCache::CpuKvCache(const KvGeometry& g)
    : geometry_(g), type_(element_type_of(g.dtype, "key/value cache")) {
  if (g.n_layers < 1 || g.n_kv_heads < 1 || g.head_dim < 1 || g.page_tokens < 1 || g.n_pages < 1)
    fail(ErrorCode::kInvalidArgument,
         "key/value cache: expected sizes >= 1, got {} layers, {} heads of {}, {} pages of {} tokens",
         g.n_layers, g.n_kv_heads, g.head_dim, g.n_pages, g.page_tokens);
  const std::size_t row = static_cast<std::size_t>(g.head_dim) * element_bytes(type_);
  const std::size_t head = product_bytes(row, static_cast<std::size_t>(g.page_tokens));
  const std::size_t page = product_bytes(head, static_cast<std::size_t>(g.n_kv_heads) * 2);
  const std::size_t layer = product_bytes(page, static_cast<std::size_t>(g.n_pages));
  row_bytes_ = static_cast<std::ptrdiff_t>(row);
  page_bytes_ = static_cast<std::ptrdiff_t>(page);
  memory_ = map_zeros(product_bytes(layer, static_cast<std::size_t>(g.n_layers)));
}

std::byte* CpuKvCache::keys(int layer, int head) const noexcept {
  return memory_.data() + layer * page_bytes_ * geometry_.n_pages + head * row_bytes_ * geometry_.page_tokens;
}

void attention(Runtime& runtime, const AttentionArgs& args, const TensorView& y) {
  const std::int64_t n_kv_heads = args.k.dim(1);
  const std::int64_t group = args.q.dim(1) / n_kv_heads;
  const std::int64_t step = block_tokens(group);
  const std::size_t n_segments = args.cu_q.size() - 1;
  std::int64_t n_blocks = 0;
  for (std::size_t s = 0; s < n_segments; ++s) n_blocks += ceil_div(args.cu_q[s + 1] - args.cu_q[s], step);
  runtime.reserve_thread_scratch(
      static_cast<std::size_t>(kernels::attention_scratch_floats(static_cast<int>(args.q.dim(2)))));
  runtime.parallel_each(n_blocks * n_kv_heads, [&](std::int64_t index, int thread) {
    const std::int64_t head = index % n_kv_heads;
    std::int64_t block = index / n_kv_heads;
    std::size_t s = 0;
    while (block >= ceil_div(args.cu_q[s + 1] - args.cu_q[s], step)) {
      block -= ceil_div(args.cu_q[s + 1] - args.cu_q[s], step);
      ++s;
    }
    const std::int64_t n_q = args.cu_q[s + 1] - args.cu_q[s];
    const std::int64_t n_k = args.cu_k[s + 1] - args.cu_k[s];
    const std::int64_t begin = block * step;
    const kernels::KeyValueRows kv = {
        reinterpret_cast<const char*>(args.k.cf32() + args.cu_k[s] * args.k.stride(0) +
                                      head * args.k.stride(1)),
        reinterpret_cast<const char*>(args.v.cf32() + args.cu_k[s] * args.v.stride(0) +
                                      head * args.v.stride(1)),
        args.k.stride(0) * 4,
        args.v.stride(0) * 4,
        nullptr,
        1,
        0,
        ElementType::kF32};
    run_block(runtime,
              {&args.q, &y, args.cu_q[s] + begin, std::min(step, n_q - begin), group, head,
               args.causal ? n_k - n_q + begin + 1 : n_k, args.causal, args.scale},
              kv, runtime.thread_scratch(thread));
  });
}

void kv_append(Runtime& runtime, const CpuKvCache& cache, int layer, const TensorView& k, const TensorView& v,
               std::span<const std::int32_t> slots) {
  const KvGeometry& g = cache.geometry();
  const std::int64_t cost_bytes = k.dim(1) * k.dim(2) * 16;
  runtime.parallel(k.dim(0), cost_bytes, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int32_t slot = slots[static_cast<std::size_t>(t)];
      const std::ptrdiff_t at =
          slot / g.page_tokens * cache.page_bytes() + slot % g.page_tokens * cache.row_bytes();
      for (int h = 0; h < g.n_kv_heads; ++h) {
        runtime.rows.narrow(cache.type(), g.head_dim, k.cf32() + t * k.stride(0) + h * k.stride(1),
                            cache.keys(layer, h) + at);
        runtime.rows.narrow(cache.type(), g.head_dim, v.cf32() + t * v.stride(0) + h * v.stride(1),
                            cache.values(layer, h) + at);
      }
    }
  });
}

void paged_attention(Runtime& runtime, const CpuKvCache& cache, int layer,
                     std::span<const KvSequence> sequences, float scale, const TensorView& q,
                     const TensorView& y) {
  const KvGeometry& g = cache.geometry();
  const std::int64_t group = q.dim(1) / g.n_kv_heads;
  const std::int64_t step = block_tokens(group);
  std::int64_t n_blocks = 0;
  for (const KvSequence& s : sequences) n_blocks += ceil_div(s.n_rows, step);
  runtime.reserve_thread_scratch(static_cast<std::size_t>(kernels::attention_scratch_floats(g.head_dim)));
  runtime.parallel_each(n_blocks * g.n_kv_heads, [&](std::int64_t index, int thread) {
    const int head = static_cast<int>(index % g.n_kv_heads);
    std::int64_t block = index / g.n_kv_heads;
    const KvSequence* s = sequences.data();
    for (; block >= ceil_div(s->n_rows, step); ++s) block -= ceil_div(s->n_rows, step);
    const std::int64_t begin = block * step;
    const kernels::KeyValueRows kv = {reinterpret_cast<const char*>(cache.keys(layer, head)),
                                      reinterpret_cast<const char*>(cache.values(layer, head)),
                                      cache.row_bytes(),
                                      cache.row_bytes(),
                                      s->pages.data(),
                                      g.page_tokens,
                                      cache.page_bytes(),
                                      cache.type()};
    run_block(runtime,
              {&q, &y, s->first_row + begin, std::min<std::int64_t>(step, s->n_rows - begin), group, head,
               s->n_context - s->n_rows + begin + 1, true, scale},
              kv, runtime.thread_scratch(thread));
  });
}

}  // namespace triptych::cpu
