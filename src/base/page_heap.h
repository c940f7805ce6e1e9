// Spans of 4 KiB units from large mapped regions: a binary buddy system (Knowlton 1965; Knuth, TAOCP vol. 1,
// section 2.5, algorithms R and S) that gives the tail of a block back at once, so that a span wastes less
// than a unit. It keeps count of the units that were ever touched ("backed": they cost memory) and gives
// free ones back to the system. Not thread-safe; MemoryPool (memory_pool.h) stands in front of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace triptych {

/// How regions are mapped.
enum class HugePages {
  kNone,
  kAdvise,    // 2 MiB pages, where the system grants them, for whole 2 MiB of one span (madvise)
  kReserved,  // hugetlbfs: pages the administrator reserved (vm.nr_hugepages); never given back
};

class PageHeap {
 public:
  static constexpr std::size_t kUnit_bytes = 4096;
  static constexpr std::size_t kHugePage_bytes = std::size_t{2} << 20;

  /// Address space is taken `region_bytes` at a time (rounded up to a power of two of at least 2 MiB), less
  /// where the system refuses.
  PageHeap(HugePages huge_pages, std::size_t region_bytes);
  ~PageHeap();
  PageHeap(const PageHeap&) = delete;
  PageHeap& operator=(const PageHeap&) = delete;

  /// A span of n units, at most region_bytes; nullptr when the system gives no memory. The units are not yet
  /// counted as backed.
  std::byte* allocate(std::size_t n_units);
  void release(std::byte* span, std::size_t n_units) noexcept;
  /// [data, data + size_bytes) inside a span will be touched.
  void back(std::byte* data, std::size_t size_bytes) noexcept;

  /// Gives free backed memory to the system, the largest blocks first, until at most n units are backed or
  /// nothing worth a call is left.
  void shrink_to(std::size_t n_units) noexcept;

  /// A word for the owner of a span's unit, zero at first. `data` must lie in a region.
  std::uint32_t& tag(const std::byte* data) noexcept;
  bool contains(const std::byte* data) const noexcept { return find(data) != nullptr; }

  std::size_t backed_units() const noexcept { return backed_units_; }
  std::int64_t n_system_calls() const noexcept { return n_system_calls_; }
  HugePages huge_pages() const noexcept { return huge_pages_; }
  /// For regions to come. Throws Error(kOutOfMemory) that says what to do when kReserved cannot be had.
  void set_huge_pages(HugePages huge_pages);

 private:
  struct Region;
  static constexpr int kMaxOrder = 18;  // blocks of up to 1 GiB
  using UnitId = std::uint32_t;         // region index * 2^18 + unit
  static constexpr UnitId kNone = ~UnitId{0};

  Region* find(const std::byte* data) const noexcept;
  bool add_region(int order);  // with room for such a block
  Region& region_of(UnitId id) const noexcept { return *regions_[id >> kMaxOrder]; }
  void insert(UnitId id, int order, bool backed) noexcept;
  void remove(UnitId id) noexcept;
  void release_block(UnitId id, int order) noexcept;
  void release_range(UnitId id, std::size_t n_units) noexcept;
  UnitId take(int order);
  UnitId take_run(std::size_t n_units);
  void give_back(UnitId id, int order) noexcept;

  HugePages huge_pages_;
  std::size_t region_bytes_;
  std::vector<Region*> regions_;
  UnitId free_[2][kMaxOrder + 1];  // lists of free blocks: without and with backed units
  std::size_t backed_units_ = 0;
  std::int64_t n_system_calls_ = 0;
};

}  // namespace triptych
