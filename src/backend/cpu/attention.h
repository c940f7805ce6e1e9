// Attention on the CPU: the paged cache of keys and values, and how queries are cut into blocks of work.
#pragma once

#include <span>

#include "backend/backend.h"
#include "backend/cpu/runtime.h"

namespace triptych::cpu {

/// Bytes: [layer][page][key or value][head][page_tokens][row], so that one head's rows of a page follow each
/// other. A row is head_dim elements, or of quantized types what kernels/kv_rows says; then the offsets of a
/// page's keys lie before each head's rows. Memory is taken from the system page by page when first written.
class CpuKvCache final : public KvCache {
 public:
  explicit CpuKvCache(const KvGeometry& geometry);

  const KvGeometry& geometry() const noexcept override { return geometry_; }
  std::size_t bytes() const noexcept override { return memory_.size_bytes(); }

  bool quantized() const noexcept { return is_quantized(geometry_.dtype); }
  ElementType type() const noexcept { return type_; }      // kF32 when quantized
  kernels::KvCode code() const noexcept { return code_; }  // when quantized
  /// Where a head's key and value rows of a layer begin; page p is p * page_bytes() further.
  std::byte* keys(int layer, int head) const noexcept;
  std::byte* values(int layer, int head) const noexcept;
  std::ptrdiff_t row_bytes() const noexcept { return row_bytes_; }
  std::ptrdiff_t page_bytes() const noexcept { return page_bytes_; }
  /// The offsets of a page's keys are so far before its first row; 0: it has none.
  std::ptrdiff_t offset_bytes() const noexcept { return offset_bytes_; }

 private:
  KvGeometry geometry_;
  ElementType type_ = ElementType::kF32;
  kernels::KvCode code_ = kernels::KvCode::kInt8;
  std::ptrdiff_t row_bytes_;
  std::ptrdiff_t offset_bytes_ = 0;
  std::ptrdiff_t page_bytes_;
  Buffer memory_;
};

/// With `int8`, products of 8-bit integers where the instruction set has them and there are rows enough.
void attention(Runtime& runtime, const AttentionArgs& args, const TensorView& y, bool int8);

void kv_append(Runtime& runtime, const CpuKvCache& cache, int layer, const TensorView& k, const TensorView& v,
               std::span<const std::int32_t> slots);

void paged_attention(Runtime& runtime, const CpuKvCache& cache, int layer,
                     std::span<const KvSequence> sequences, float scale, const TensorView& q,
                     const TensorView& y);

}  // namespace triptych::cpu
