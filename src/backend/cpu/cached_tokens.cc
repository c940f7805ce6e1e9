#include "backend/cpu/cached_tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/half.h"

namespace triptych::cpu {
namespace {

constexpr int kLanes = 16;  // sums side by side, for vector registers of any width

float dot(const float* a, const float* b, std::int64_t n) {
  std::array<float, kLanes> sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      sums[static_cast<std::size_t>(lane)] += a[i + lane] * b[i + lane];
  float out = 0;
  for (; i < n; ++i) out += a[i] * b[i];
  for (const float sum : sums) out += sum;
  return out;
}

// Rows of one layer and key/value head.
class HeadRows {
 public:
  HeadRows(const Runtime& runtime, const CpuKvCache& cache, int layer, int head)
      : runtime_(runtime), cache_(cache), layer_(layer), head_(head) {}

  std::byte* keys(std::int32_t page) const {
    return cache_.page_data()[page] + cache_.keys_in_page(layer_, head_);
  }
  std::byte* values(std::int32_t page) const {
    return cache_.page_data()[page] + cache_.values_in_page(layer_, head_);
  }
  // What was subtracted from channels of the page's keys before they were rounded.
  std::span<const kernels::KvOffset> offsets(std::int32_t page) const {
    return {reinterpret_cast<const kernels::KvOffset*>(keys(page) - cache_.offset_bytes()),
            static_cast<std::size_t>(kernels::kv_max_offsets(cache_.geometry().head_dim))};
  }
  std::byte* key(std::int32_t page, std::int32_t row) const { return keys(page) + row * cache_.row_bytes(); }
  std::byte* value(std::int32_t page, std::int32_t row) const {
    return values(page) + row * cache_.row_bytes();
  }
  void read_key(std::int32_t page, std::int32_t row, float* out) const {
    const int head_dim = cache_.geometry().head_dim;
    if (cache_.quantized()) {
      runtime_.kv_rows.decode(cache_.code(), head_dim, reinterpret_cast<const std::uint8_t*>(key(page, row)),
                              nullptr, out);
      for (const kernels::KvOffset& one : offsets(page)) out[one.channel] += bf16_to_f32(one.value);
    } else {
      runtime_.rows.widen(cache_.type(), head_dim, key(page, row), out);
    }
  }
  bool same_offsets(std::int32_t a, std::int32_t b) const {
    return a == b || !cache_.quantized() ||
           std::memcmp(offsets(a).data(), offsets(b).data(), offsets(a).size_bytes()) == 0;
  }

 private:
  const Runtime& runtime_;
  const CpuKvCache& cache_;
  int layer_;
  int head_;
};

void check_written(const char* operation, const CpuKvCache& cache, std::int32_t page) {
  TRIPTYCH_CHECK(page >= 0 && page < cache.geometry().n_pages && cache.page_data()[page] != nullptr,
                 "[{}] nothing was written to page {}", operation, page);
}

}  // namespace

void key_norms(Runtime& runtime, const CpuKvCache& cache, int layer, std::span<const std::int32_t> slots,
               std::span<float> norms) {
  const KvGeometry& g = cache.geometry();
  const auto n = static_cast<std::int64_t>(slots.size());
  TRIPTYCH_CHECK(static_cast<std::int64_t>(norms.size()) == n * g.n_kv_heads,
                 "[key_norms] {} norms of {} keys", norms.size(), n * g.n_kv_heads);
  for (const std::int32_t slot : slots) check_written("key_norms", cache, slot / g.page_tokens);
  runtime.reserve_thread_scratch(static_cast<std::size_t>(g.head_dim));
  runtime.parallel(
      n, std::int64_t{g.n_kv_heads} * g.head_dim * 8, [&](std::int64_t begin, std::int64_t end, int thread) {
        float* key = runtime.thread_scratch(thread);
        for (std::int64_t i = begin; i < end; ++i)
          for (int h = 0; h < g.n_kv_heads; ++h) {
            const std::int32_t slot = slots[static_cast<std::size_t>(i)];
            HeadRows(runtime, cache, layer, h).read_key(slot / g.page_tokens, slot % g.page_tokens, key);
            norms[static_cast<std::size_t>(i * g.n_kv_heads + h)] = std::sqrt(dot(key, key, g.head_dim));
          }
      });
}

void add_received_attention(Runtime& runtime, const CpuKvCache& cache, int layer, const KvSequence& s,
                            const CacheAttention& how, const TensorView& q, std::span<float> received) {
  const KvGeometry& g = cache.geometry();
  const auto n_context = static_cast<std::int64_t>(s.n_context);
  const std::int64_t head_dim = g.head_dim;
  const std::int64_t group = q.dim(1) / g.n_kv_heads;
  TRIPTYCH_CHECK(static_cast<std::int64_t>(received.size()) == n_context && s.n_rows <= s.n_context,
                 "[add_received_attention] {} sums for {} tokens", received.size(), n_context);
  for (std::int64_t i = 0; i < n_context; i += g.page_tokens)
    check_written("add_received_attention", cache, s.pages[static_cast<std::size_t>(i / g.page_tokens)]);
  float* sums = runtime.shared_scratch(static_cast<std::size_t>(g.n_kv_heads * n_context));  // [Hkv, n]
  runtime.reserve_thread_scratch(static_cast<std::size_t>(n_context * (head_dim + 1)));
  runtime.parallel_each(g.n_kv_heads, [&](std::int64_t head, int thread) {
    const HeadRows rows(runtime, cache, layer, static_cast<int>(head));
    float* keys = runtime.thread_scratch(thread);  // [n, Dh]
    float* weights = keys + n_context * head_dim;
    float* sum = sums + head * n_context;
    std::fill(sum, sum + n_context, 0.0F);
    for (std::int64_t i = 0; i < n_context; ++i)
      rows.read_key(s.pages[static_cast<std::size_t>(i / g.page_tokens)],
                    static_cast<std::int32_t>(i % g.page_tokens), keys + i * head_dim);
    for (std::int64_t row = 0; row < s.n_rows; ++row) {
      const std::int64_t end = n_context - s.n_rows + row + 1;
      const std::int64_t first = how.window > 0 ? std::max<std::int64_t>(0, end - how.window) : 0;
      for (std::int64_t member = 0; member < group; ++member) {
        const float* query =
            q.cf32() + (s.first_row + row) * q.stride(0) + (head * group + member) * q.stride(1);
        float top = -std::numeric_limits<float>::infinity();
        for (std::int64_t i = first; i < end; ++i) {
          weights[i] = how.scale * dot(query, keys + i * head_dim, head_dim);
          top = std::max(top, weights[i]);
        }
        float total = 0;
        for (std::int64_t i = first; i < end; ++i) total += weights[i] = std::exp(weights[i] - top);
        for (std::int64_t i = first; i < end; ++i) sum[i] += weights[i] / total;
      }
    }
  });
  for (std::int64_t head = 0; head < g.n_kv_heads; ++head)
    for (std::int64_t i = 0; i < n_context; ++i)
      received[static_cast<std::size_t>(i)] += sums[head * n_context + i];
}

void move_cached_tokens(Runtime& runtime, CpuKvCache& cache, std::span<const std::int32_t> from,
                        std::span<const std::int32_t> to) {
  const KvGeometry& g = cache.geometry();
  TRIPTYCH_CHECK(from.size() == to.size(), "[move_cached_tokens] {} tokens to {} slots", from.size(),
                 to.size());
  for (const std::int32_t slot : from) check_written("move_cached_tokens", cache, slot / g.page_tokens);
  for (const std::int32_t slot : to) check_written("move_cached_tokens", cache, slot / g.page_tokens);
  const auto row_bytes = static_cast<std::size_t>(cache.row_bytes());
  runtime.reserve_thread_scratch(static_cast<std::size_t>(g.head_dim));
  runtime.parallel_each(std::int64_t{g.n_layers} * g.n_kv_heads, [&](std::int64_t index, int thread) {
    const HeadRows rows(runtime, cache, static_cast<int>(index / g.n_kv_heads),
                        static_cast<int>(index % g.n_kv_heads));
    float* key = runtime.thread_scratch(thread);
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (from[i] == to[i]) continue;
      const std::int32_t from_page = from[i] / g.page_tokens;
      const std::int32_t from_row = from[i] % g.page_tokens;
      const std::int32_t to_page = to[i] / g.page_tokens;
      const std::int32_t to_row = to[i] % g.page_tokens;
      // A page's offsets stay as long as it does: rows that were not moved yet are read with them.
      if (rows.same_offsets(from_page, to_page)) {
        std::memcpy(rows.key(to_page, to_row), rows.key(from_page, from_row), row_bytes);
      } else {
        rows.read_key(from_page, from_row, key);
        for (const kernels::KvOffset& one : rows.offsets(to_page)) key[one.channel] -= bf16_to_f32(one.value);
        runtime.kv_rows.encode(cache.code(), g.head_dim, key, nullptr,
                               reinterpret_cast<std::uint8_t*>(rows.key(to_page, to_row)));
      }
      std::memcpy(rows.value(to_page, to_row), rows.value(from_page, from_row), row_bytes);
    }
  });
}

}  // namespace triptych::cpu
