// Scratch memory of a step. Allocation moves a pointer; nothing is freed one by one. reset() between steps
// keeps the memory, and merges it into one chunk when a step needed several, so that a steady step allocates
// nothing. Not thread-safe: one arena per step loop. Under AddressSanitizer released memory is poisoned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include "tensor/tensor.h"

namespace triptych {

class Arena {
 public:
  /// A place to rewind to.
  struct Mark {
    std::size_t chunk = 0;
    std::size_t offset_bytes = 0;
    std::size_t in_use_bytes = 0;
  };
  using Allocator = std::function<Buffer(std::size_t size_bytes)>;

  /// `allocate` gives chunks (a backend's memory); Buffer::allocate by default. Memory is taken on first use,
  /// in chunks of at least `min_chunk_bytes`.
  explicit Arena(std::size_t min_chunk_bytes = std::size_t{1} << 20, Allocator allocate = Buffer::allocate);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// 64-byte aligned, not initialised; valid until a rewind or reset passes it. Throws Error(kOutOfMemory).
  TensorView make(DType dtype, const Shape& shape);
  std::byte* make_bytes(std::size_t size_bytes);
  /// n elements of a trivial type, e.g. indices.
  template <typename T>
  std::span<T> make_span(std::size_t n) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= Buffer::kAlignment_bytes);
    return {reinterpret_cast<T*>(make_array(n, sizeof(T))), n};
  }

  Mark mark() const noexcept;
  /// Releases everything made after `mark`. Marks are used like a stack.
  void rewind(const Mark& mark) noexcept;
  /// Releases everything; merges chunks when there are several.
  void reset();
  /// Gives all memory back.
  void release() noexcept;

  /// Bytes handed out now (rounded up to 64 per request), their maximum so far, and the memory held.
  std::size_t bytes_in_use() const noexcept { return in_use_bytes_; }
  std::size_t peak_bytes() const noexcept { return peak_bytes_; }
  std::size_t reserved_bytes() const noexcept;
  /// How often memory was taken from the allocator; constant in a steady state.
  std::int64_t n_chunk_allocations() const noexcept { return n_chunk_allocations_; }
  /// Most bytes handed out at once since the last reset().
  std::size_t high_bytes() const noexcept { return high_bytes_; }
  /// Changes when memory was given back: as long as it stays, the same requests behind a reset() that found
  /// one chunk get the same addresses.
  std::int64_t generation() const noexcept { return generation_; }

 private:
  std::byte* make_array(std::size_t n, std::size_t element_bytes);
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

/// Rewinds at the end of a scope.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) noexcept : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.rewind(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace triptych
