// The memory that arenas, packed weights, pages of keys and values, scratch, pictures and their rows live in:
// spans of 4 KiB units from a buddy system (page_heap.h) over huge pages, and slabs of equal objects for
// sizes announced with add_size, which are pages of a cache. Memory that is free beyond what was in use
// lately goes back to the system. Slabs: Bonwick, "The Slab Allocator", USENIX 1994.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/page_heap.h"

namespace triptych {

struct MemoryPoolOptions {
  HugePages huge_pages = HugePages::kAdvise;
  std::size_t region_bytes = std::size_t{1} << 30;  // of address space, taken at a time
  /// Free memory kept beside a 32nd (16 MiB at most) of the most that was in use lately.
  std::size_t keep_bytes = std::size_t{4} << 20;
  /// Finds writes past the end of a block when it is released; on in builds without NDEBUG. Under
  /// AddressSanitizer the space between blocks is poisoned instead, and so are released blocks.
  bool check_bounds =
#ifdef NDEBUG
      false;
#else
      true;
#endif
};

struct MemoryPoolStats {
  std::size_t granted_bytes = 0;       // in blocks handed out, as rounded up
  std::size_t peak_granted_bytes = 0;  // the most so far
  std::size_t reserved_bytes = 0;      // touched and not given back to the system
  std::size_t n_blocks = 0;            // handed out now
  std::int64_t n_allocations = 0;      // so far
  std::int64_t n_system_calls = 0;     // so far
};

/// Thread-safe.
class MemoryPool {
 public:
  static constexpr std::size_t kAlignment_bytes = 64;
  static constexpr std::size_t kMaxObject_bytes = std::size_t{1} << 20;  // of a slab

  explicit MemoryPool(const MemoryPoolOptions& options = {});
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// The one that Buffer draws from; never destroyed.
  static MemoryPool& process();

  /// 64-byte aligned (more than 1 MiB: at 2 MiB), not initialised. Throws Error(kOutOfMemory).
  std::byte* allocate(std::size_t size_bytes);
  /// Throws Error(kInternal) for an address that is not a block of this pool or was released before, and,
  /// with check_bounds, for a block that was written past its end.
  void release(std::byte* data);

  /// Makes `size_bytes` (at most kMaxObject_bytes) a slab class: such blocks lie beside each other, eight to
  /// a slab, and memory that one of them has touched serves the next.
  void add_size(std::size_t size_bytes);
  /// Gives all free memory to the system.
  void trim();
  /// For memory taken from now on. Throws Error(kOutOfMemory) with what to do when kReserved cannot be had.
  void set_huge_pages(HugePages huge_pages);
  /// Blocks beyond so many granted bytes are refused as if there were no memory; 0: no limit.
  void set_limit(std::size_t bytes);

  MemoryPoolStats stats() const;

 private:
  static constexpr std::uint32_t kSlabObjects = 8;
  static constexpr std::uint32_t kAllFree = (1U << kSlabObjects) - 1;
  struct SlabClass {
    std::size_t object_bytes = 0;       // whole units
    std::vector<std::uint32_t> usable;  // slabs with a free object; has room for all of its slabs
    std::size_t n_slabs = 0;
  };
  struct Slab {
    std::byte* data = nullptr;
    std::uint32_t free = 0;  // bit an object
    std::uint32_t size_class = 0;
  };
  struct Block {  // where an address belongs; size 0: nowhere
    std::size_t granted_bytes = 0;
    std::uint32_t slab = kNoSlab;
    std::uint32_t object = 0;
  };
  static constexpr std::uint32_t kNoSlab = ~std::uint32_t{0};
  static constexpr std::size_t kDirect_bytes = std::size_t{128} << 20;  // from here on mapped by itself

  int class_of(std::size_t size_bytes) const noexcept;
  std::byte* take_object(int size_class);
  bool add_slab(int size_class);
  void release_object(const Block& block);
  void drop_slab(std::uint32_t index);
  std::byte* take_span(std::size_t size_bytes);
  std::byte* map_directly(std::size_t size_bytes);
  Block find(const std::byte* data);
  void check_end(const std::byte* data, std::size_t granted_bytes) const;
  void note_use() noexcept;

  const MemoryPoolOptions options_;
  const std::size_t guard_bytes_;
  mutable std::mutex mutex_;
  PageHeap heap_;
  std::vector<SlabClass> classes_;
  std::vector<Slab> slabs_;
  std::vector<std::uint32_t> unused_slabs_;
  std::map<const std::byte*, std::size_t> direct_;
  std::size_t direct_bytes_ = 0;
  std::size_t limit_bytes_ = 0;
  MemoryPoolStats stats_;
  // The most that was granted in this stretch of calls and in the one before.
  std::size_t recent_peak_bytes_[2] = {};
  std::int64_t n_calls_of_stretch_ = 0;
};

}  // namespace triptych
