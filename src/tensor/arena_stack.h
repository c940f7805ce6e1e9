// Memory of one kind, handed out by moving a pointer and taken back in the reverse order. What an Arena is
// made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace triptych {

class ArenaStack {
 public:
  struct Mark {
    std::size_t chunk = 0;
    std::size_t offset_bytes = 0;
    std::size_t in_use_bytes = 0;
  };
  using Allocator = std::function<Buffer(std::size_t size_bytes)>;

  ArenaStack(std::size_t min_chunk_bytes, Allocator allocate);
  ~ArenaStack();
  ArenaStack(const ArenaStack&) = delete;
  ArenaStack& operator=(const ArenaStack&) = delete;

  /// 64-byte aligned, not initialised. Throws Error(kOutOfMemory).
  std::byte* make_bytes(std::size_t size_bytes);
  std::byte* make_array(std::size_t n, std::size_t element_bytes);
  /// Of the allocator's memory; kHost before the first use.
  MemoryKind kind() const noexcept { return chunks_.empty() ? MemoryKind::kHost : chunks_.front().kind(); }

  Mark mark() const noexcept;
  void rewind(const Mark& mark) noexcept;
  void reset();
  void release() noexcept;

  std::size_t bytes_in_use() const noexcept { return in_use_bytes_; }
  std::size_t peak_bytes() const noexcept { return peak_bytes_; }
  std::size_t high_bytes() const noexcept { return high_bytes_; }
  std::size_t reserved_bytes() const noexcept;
  std::int64_t n_chunk_allocations() const noexcept { return n_chunk_allocations_; }
  std::int64_t generation() const noexcept { return generation_; }

 private:
  void add_chunk(std::size_t size_bytes);

  std::size_t min_chunk_bytes_;
  Allocator allocate_;
  std::vector<Buffer> chunks_;
  std::size_t chunk_ = 0;         // index of the chunk in use
  std::size_t offset_bytes_ = 0;  // first free byte in it
  std::size_t in_use_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  std::size_t high_bytes_ = 0;
  std::int64_t generation_ = 0;
  std::int64_t n_chunk_allocations_ = 0;
};

}  // namespace triptych
