// A record of allocations, to be replayed later with other allocators ("triptych bench --memory"). Off by
// default: then a note costs one relaxed load.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace triptych {

enum class AllocationKind : std::uint8_t {
  kBuffer,  // of the memory pool: pictures, their rows, scratch
  kChunk,   // of the memory pool, for an arena
  kTensor,  // in an arena's chunk
  kKvPage,  // one page of the key/value cache, all layers
};
inline constexpr int kAllocationKinds = 4;

struct AllocationEvent {
  std::uint32_t block = 0;  // numbered from 0 in the order of their allocation
  AllocationKind kind = AllocationKind::kBuffer;
  std::uint64_t size_bytes = 0;  // 0: the block is released

  friend bool operator==(const AllocationEvent&, const AllocationEvent&) = default;
};

/// Thread-safe. Blocks that were allocated before the record began are not in it.
class AllocationRecorder {
 public:
  /// Listens from here on until it is destroyed; one at a time.
  AllocationRecorder();
  ~AllocationRecorder();
  AllocationRecorder(const AllocationRecorder&) = delete;
  AllocationRecorder& operator=(const AllocationRecorder&) = delete;

  /// What happened so far.
  std::vector<AllocationEvent> events() const;

  void allocated(AllocationKind kind, std::uintptr_t address, std::size_t size_bytes);
  /// All blocks of this kind that begin in [first, last].
  void released(AllocationKind kind, std::uintptr_t first, std::uintptr_t last);

 private:
  mutable std::mutex mutex_;
  std::vector<AllocationEvent> events_;
  std::map<std::uintptr_t, std::uint32_t> live_[kAllocationKinds];
  std::uint32_t n_blocks_ = 0;
};

namespace detail {
extern std::atomic<AllocationRecorder*> g_recorder;
}

// Notes; nothing happens unless a recorder listens. An address identifies a block among those of its kind.
inline void note_allocated(AllocationKind kind, std::uintptr_t address, std::size_t size_bytes) {
  if (AllocationRecorder* r = detail::g_recorder.load(std::memory_order_relaxed); r != nullptr) [[unlikely]]
    r->allocated(kind, address, size_bytes);
}
inline void note_released(AllocationKind kind, std::uintptr_t first, std::uintptr_t last) {
  if (AllocationRecorder* r = detail::g_recorder.load(std::memory_order_relaxed); r != nullptr) [[unlikely]]
    r->released(kind, first, last);
}

/// Within its scope, pool memory that this thread takes is noted as of this kind: chunks of an arena, pages
/// of keys and values. The innermost scope counts.
class AllocationScope {
 public:
  explicit AllocationScope(AllocationKind kind) noexcept;
  ~AllocationScope();
  AllocationScope(const AllocationScope&) = delete;
  AllocationScope& operator=(const AllocationScope&) = delete;

  /// kBuffer outside of any.
  static AllocationKind kind() noexcept;

 private:
  AllocationKind outer_;
};

}  // namespace triptych
