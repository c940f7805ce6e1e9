// Attention on the CPU: the paged cache of keys and values, and how queries are cut into blocks of work.
#pragma once

#include <span>

#include "backend/backend.h"
#include "backend/cpu/runtime.h"

namespace triptych::cpu {

/// Bytes: [layer][page][key or value][head][page_tokens][head_dim], so that one head's rows of a page follow
/// each other. Memory is taken from the system page by page when first written.
class CpuKvCache final : public KvCache {
 public:
  explicit CpuKvCache(const KvGeometry& geometry);

  const KvGeometry& geometry() const noexcept override { return geometry_; }
  std::size_t bytes() const noexcept override { return memory_.size_bytes(); }

  ElementType type() const noexcept { return type_; }
  /// Where a head's key rows of a layer begin; page p is p * page_bytes() further, values half a page.
  std::byte* keys(int layer, int head) const noexcept;
  std::byte* values(int layer, int head) const noexcept { return keys(layer, head) + page_bytes() / 2; }
  std::ptrdiff_t row_bytes() const noexcept { return row_bytes_; }
  std::ptrdiff_t page_bytes() const noexcept { return page_bytes_; }

 private:
  KvGeometry geometry_;
  ElementType type_;
  std::ptrdiff_t row_bytes_;
  std::ptrdiff_t page_bytes_;
  Buffer memory_;
};

void attention(Runtime& runtime, const AttentionArgs& args, const TensorView& y);

void kv_append(Runtime& runtime, const CpuKvCache& cache, int layer, const TensorView& k, const TensorView& v,
               std::span<const std::int32_t> slots);

void paged_attention(Runtime& runtime, const CpuKvCache& cache, int layer,
                     std::span<const KvSequence> sequences, float scale, const TensorView& q,
                     const TensorView& y);

}  // namespace triptych::cpu
