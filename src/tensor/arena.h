// Scratch memory of a step. Allocation moves a pointer; nothing is freed one by one. reset() between steps
// keeps the memory, and merges it into one chunk when a step needed several, so that a steady step allocates
// nothing. Not thread-safe: one arena per step loop. Under AddressSanitizer released memory is poisoned.
//
// Tensors of operations lie in the memory of the backend. Spans, and tensors that this processor fills or
// reads, lie in host memory: the same where operations work on host memory, a second one beside a device's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "tensor/arena_stack.h"
#include "tensor/tensor.h"

namespace triptych {

class Arena {
 public:
  /// A place to rewind to.
  struct Mark {
    ArenaStack::Mark tensors, host;
  };
  /// Bytes of both memories.
  struct Extent {
    std::size_t tensor_bytes = 0;
    std::size_t host_bytes = 0;
  };
  using Allocator = ArenaStack::Allocator;

  /// `allocate` gives chunks of host memory for everything. Memory is taken on first use, in chunks of at
  /// least `min_chunk_bytes`.
  explicit Arena(std::size_t min_chunk_bytes = kMinChunkBytes, Allocator allocate = Buffer::allocate);
  /// `allocate` gives a device's memory for the tensors of operations, `allocate_host` host memory for the
  /// rest.
  Arena(std::size_t min_chunk_bytes, Allocator allocate, Allocator allocate_host);
  static constexpr std::size_t kMinChunkBytes = std::size_t{1} << 20;

  /// A tensor of operations: 64-byte aligned, not initialised; valid until a rewind or reset passes it.
  /// Throws Error(kOutOfMemory), as all that follow.
  TensorView make(DType dtype, const Shape& shape);
  std::byte* make_bytes(std::size_t size_bytes) { return tensors_.make_bytes(size_bytes); }
  /// The same in host memory.
  TensorView make_host(DType dtype, const Shape& shape);
  /// n elements of a trivial type in host memory, e.g. indices.
  template <typename T>
  std::span<T> make_span(std::size_t n) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= Buffer::kAlignment_bytes);
    return {reinterpret_cast<T*>(host().make_array(n, sizeof(T))), n};
  }

  Mark mark() const noexcept;
  /// Releases everything made after `mark`. Marks are used like a stack.
  void rewind(const Mark& mark) noexcept;
  /// Releases everything; merges chunks when there are several.
  void reset();
  /// Gives all memory back.
  void release() noexcept;

  /// Bytes handed out now (rounded up to 64 per request), their maximum so far, and the memory held.
  std::size_t bytes_in_use() const noexcept;
  std::size_t peak_bytes() const noexcept;
  std::size_t reserved_bytes() const noexcept;
  /// How often memory was taken from the allocators; constant in a steady state.
  std::int64_t n_chunk_allocations() const noexcept;
  /// Most bytes handed out at once since the last reset().
  Extent high() const noexcept;
  /// Hands out so many bytes at once, to someone who knows what lies where in them.
  void take(const Extent& extent);
  /// Changes when memory was given back: as long as it stays, the same requests behind a reset() that found
  /// one chunk of each memory get the same addresses.
  std::int64_t generation() const noexcept;

 private:
  ArenaStack& host() noexcept { return host_ ? *host_ : tensors_; }

  ArenaStack tensors_;
  std::optional<ArenaStack> host_;  // where tensors_ is a device's memory
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
