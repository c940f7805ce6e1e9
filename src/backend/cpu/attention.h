// Attention on the CPU: the paged cache of keys and values, and how queries are cut into blocks of work.
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/runtime.h"

namespace triptych::cpu {

/// A page is a block of the memory pool, taken when it is first written: [layer][key or value][head]
/// [page_tokens][row], so that one head's rows follow each other. A row is head_dim elements, or of quantized
/// types what kernels/kv_rows says; then the offsets of a page's keys (KvOffset) lie before each head's rows.
class CpuKvCache final : public KvCache {
 public:
  explicit CpuKvCache(const KvGeometry& geometry);
  ~CpuKvCache() override;
  CpuKvCache(const CpuKvCache&) = delete;
  CpuKvCache& operator=(const CpuKvCache&) = delete;

  const KvGeometry& geometry() const noexcept override { return geometry_; }
  std::size_t bytes() const noexcept override { return pages_.size() * page_bytes_; }
  void release_pages(std::span<const std::int32_t> pages) noexcept override;
  void copy_page(std::int32_t from, std::int32_t to) override;
  std::size_t page_bytes() const noexcept override { return page_bytes_; }
  void read_page(std::int32_t page, int n_rows, std::span<std::byte> to) const override;
  void write_page(std::int32_t page, std::span<const std::byte> from) override;

  bool quantized() const noexcept { return is_quantized(geometry_.dtype); }
  ElementType type() const noexcept { return type_; }      // kF32 when quantized
  kernels::KvCode code() const noexcept { return code_; }  // when quantized
  /// Takes memory for the pages of these slots that have none. Throws Error(kOutOfMemory).
  void hold(std::span<const std::int32_t> slots);
  /// Where pages begin, null for those without memory; and from there to a head's key and value rows.
  std::byte* const* page_data() const noexcept { return pages_.data(); }
  std::ptrdiff_t keys_in_page(int layer, int head) const noexcept;
  std::ptrdiff_t values_in_page(int layer, int head) const noexcept;
  std::ptrdiff_t row_bytes() const noexcept { return row_bytes_; }
  /// The offsets of a page's keys are so far before its first row; 0: it has none.
  std::ptrdiff_t offset_bytes() const noexcept { return offset_bytes_; }
  /// Those before a head's first key row.
  std::span<kernels::KvOffset> offsets_before(std::byte* keys) const noexcept {
    return {reinterpret_cast<kernels::KvOffset*>(keys - offset_bytes_),
            static_cast<std::size_t>(offset_bytes_) / sizeof(kernels::KvOffset)};
  }

 private:
  KvGeometry geometry_;
  ElementType type_ = ElementType::kF32;
  kernels::KvCode code_ = kernels::KvCode::kInt8;
  std::ptrdiff_t row_bytes_;
  std::ptrdiff_t offset_bytes_ = 0;
  std::ptrdiff_t layer_bytes_;  // of a page
  std::size_t page_bytes_;
  std::vector<std::byte*> pages_;
};

/// Over plain tensors, with the algorithm that segment_attention_algorithm chooses.
void attention(Runtime& runtime, const AttentionArgs& args, const TensorView& y);

/// What shapes decide of attention over a cache: made once for a step that is recorded.
struct PagedPlan {
  AttentionAlgorithm algorithm = AttentionAlgorithm::kFloat;
  std::int64_t group = 1;       // query heads per key/value head
  std::int64_t max_tokens = 1;  // of a block of queries
  std::int64_t n_blocks = 0;    // of all sequences
  std::size_t scratch_floats = 0;
};
PagedPlan plan_paged_attention(const Runtime& runtime, const CpuKvCache& cache,
                               std::span<const KvSequence> sequences, const TensorView& q);

void kv_append(Runtime& runtime, CpuKvCache& cache, int layer, const TensorView& k, const TensorView& v,
               std::span<const std::int32_t> slots);

void paged_attention(Runtime& runtime, const CpuKvCache& cache, int layer,
                     std::span<const KvSequence> sequences, const CacheAttention& how, const TensorView& q,
                     const TensorView& y, const PagedPlan& plan);

}  // namespace triptych::cpu
