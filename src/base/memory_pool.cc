#include "base/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/allocation_trace.h"
#include "base/asan.h"
#include "base/error.h"

namespace triptych {
namespace {

constexpr std::size_t kMostSpare_bytes = std::size_t{16} << 20;

constexpr std::size_t kUnit_bytes = PageHeap::kUnit_bytes;
constexpr std::int64_t kStretch_calls = 1024;

// What a unit's tag says, when not zero.
constexpr std::uint32_t kSpanTag = 0x80000000;  // first unit of a span; below: its length in units
// else the number of the slab, plus one.

constexpr std::byte kGuardByte{0xA5};

std::size_t rounded(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

std::size_t guard_of(const MemoryPoolOptions& options) {
#ifdef TRIPTYCH_ASAN
  static_cast<void>(options);
  return 64;  // poisoned
#else
  return options.check_bounds ? 64 : 0;
#endif
}

}  // namespace

MemoryPool::MemoryPool(const MemoryPoolOptions& options)
    : options_(options),
      guard_bytes_(guard_of(options)),
      heap_(options.huge_pages == HugePages::kReserved ? HugePages::kNone : options.huge_pages,
            options.region_bytes) {
  if (options.huge_pages == HugePages::kReserved) heap_.set_huge_pages(HugePages::kReserved);
}

MemoryPool::~MemoryPool() {
  for (const auto& [data, size_bytes] : direct_) {
    TRIPTYCH_UNPOISON(data, size_bytes);
    munmap(const_cast<std::byte*>(data), size_bytes);
  }
}

MemoryPool& MemoryPool::process() {
  static MemoryPool& pool = *new MemoryPool;  // buffers of static objects may outlive every other static
  return pool;
}

void MemoryPool::add_size(std::size_t size_bytes) {
  const std::scoped_lock lock(mutex_);
  TRIPTYCH_CHECK(size_bytes <= kMaxObject_bytes, "a slab class of {} bytes", size_bytes);
  const std::size_t object_bytes = rounded(size_bytes + guard_bytes_, kUnit_bytes);
  if (class_of(object_bytes) < 0) classes_.push_back({.object_bytes = object_bytes, .usable = {}});
}

int MemoryPool::class_of(std::size_t size_bytes) const noexcept {
  const std::size_t whole = rounded(size_bytes, kUnit_bytes);
  for (std::size_t i = 0; i < classes_.size(); ++i)
    if (classes_[i].object_bytes == whole) return static_cast<int>(i);
  return -1;
}

bool MemoryPool::add_slab(int size_class) {
  SlabClass& c = classes_[static_cast<std::size_t>(size_class)];
  const std::size_t n_units = c.object_bytes * kSlabObjects / kUnit_bytes;
  // Releasing must not need memory: all slabs may have a free object at once.
  if (c.usable.capacity() <= c.n_slabs) c.usable.reserve(2 * c.n_slabs + 1);
  if (unused_slabs_.empty()) {
    if (unused_slabs_.capacity() <= slabs_.size()) unused_slabs_.reserve(2 * slabs_.size() + 1);
    slabs_.emplace_back();
    unused_slabs_.push_back(static_cast<std::uint32_t>(slabs_.size() - 1));
  }
  std::byte* data = heap_.allocate(n_units);
  if (data == nullptr) return false;
  const std::uint32_t index = unused_slabs_.back();
  unused_slabs_.pop_back();
  Slab& slab = slabs_[index];
  slab.data = data;
  slab.size_class = static_cast<std::uint32_t>(size_class);
  slab.free = kAllFree;
  for (std::size_t u = 0; u < n_units; ++u) heap_.tag(data + u * kUnit_bytes) = index + 1;
  TRIPTYCH_POISON(data, n_units * kUnit_bytes);
  c.usable.push_back(index);
  ++c.n_slabs;
  return true;
}

std::byte* MemoryPool::take_object(int size_class) {
  SlabClass& c = classes_[static_cast<std::size_t>(size_class)];
  if (c.usable.empty() && !add_slab(size_class)) return nullptr;
  Slab& slab = slabs_[c.usable.back()];
  std::byte* data = slab.data + static_cast<unsigned>(std::countr_zero(slab.free)) * c.object_bytes;
  slab.free &= slab.free - 1;
  if (slab.free == 0) c.usable.pop_back();
  heap_.back(data, c.object_bytes);
  stats_.granted_bytes += c.object_bytes;
  return data;
}

void MemoryPool::release_object(const Block& block) {
  Slab& slab = slabs_[block.slab];
  SlabClass& c = classes_[slab.size_class];
  if (slab.free == 0) c.usable.push_back(block.slab);
  slab.free |= 1U << block.object;
  // An empty slab goes, unless it is the only one: a page that comes and goes should not make and drop slabs.
  if (slab.free == kAllFree && c.usable.size() > 1) drop_slab(block.slab);
}

void MemoryPool::drop_slab(std::uint32_t index) {
  Slab& slab = slabs_[index];
  SlabClass& c = classes_[slab.size_class];
  c.usable.erase(std::find(c.usable.begin(), c.usable.end(), index));
  const std::size_t n_units = c.object_bytes * kSlabObjects / kUnit_bytes;
  for (std::size_t u = 0; u < n_units; ++u) heap_.tag(slab.data + u * kUnit_bytes) = 0;
  heap_.release(slab.data, n_units);
  slab.data = nullptr;
  --c.n_slabs;
  unused_slabs_.push_back(index);  // there is room: it was made with the slab
}

std::byte* MemoryPool::take_span(std::size_t size_bytes) {
  if (size_bytes >= kDirect_bytes) return nullptr;
  const std::size_t n_units = rounded(size_bytes, kUnit_bytes) / kUnit_bytes;
  std::byte* data = heap_.allocate(n_units);
  if (data == nullptr) return nullptr;
  heap_.tag(data) = kSpanTag | static_cast<std::uint32_t>(n_units);
  heap_.back(data, n_units * kUnit_bytes);
  stats_.granted_bytes += n_units * kUnit_bytes;
  return data;
}

// Very large blocks, whose address space is not worth keeping, and those that found no room in a region.
std::byte* MemoryPool::map_directly(std::size_t size_bytes) {
  constexpr std::size_t kHuge = PageHeap::kHugePage_bytes;
  const std::size_t need = rounded(size_bytes, kUnit_bytes);
  void* mapping = mmap(nullptr, need + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(mapping);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  std::byte* data = begin + (rounded(address, kHuge) - address);
  std::byte* end = begin + need + kHuge;
  if (data > begin) munmap(begin, static_cast<std::size_t>(data - begin));
  if (end > data + need) munmap(data + need, static_cast<std::size_t>(end - data) - need);
#if defined(MADV_HUGEPAGE)
  if (heap_.huge_pages() != HugePages::kNone) madvise(data, need / kHuge * kHuge, MADV_HUGEPAGE);  // a hint
#endif
  try {
    direct_.emplace(data, need);
  } catch (...) {
    munmap(data, need);
    throw;
  }
  direct_bytes_ += need;
  stats_.granted_bytes += need;
  stats_.n_system_calls += 4;
  return data;
}

std::byte* MemoryPool::allocate(std::size_t size_bytes) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 47;  // beyond the address space of any process
  std::byte* data = nullptr;
  const std::scoped_lock lock(mutex_);
  const std::size_t before = stats_.granted_bytes;
  const bool fits = limit_bytes_ == 0 || (before <= limit_bytes_ && size_bytes <= limit_bytes_ - before);
  if (size_bytes < kMaxBytes && fits) {
    const std::size_t need = size_bytes + guard_bytes_;
    const int size_class = class_of(need);
    data = size_class >= 0 ? take_object(size_class) : take_span(need);
    if (data == nullptr) data = map_directly(need);
  }
  if (data == nullptr) fail(ErrorCode::kOutOfMemory, "no memory for {} bytes", size_bytes);
  ++stats_.n_allocations;
  ++stats_.n_blocks;
  note_use();
  note_allocated(AllocationScope::kind(), reinterpret_cast<std::uintptr_t>(data), size_bytes);
#ifdef TRIPTYCH_ASAN
  const std::size_t granted = stats_.granted_bytes - before;
  TRIPTYCH_POISON(data, granted);
  TRIPTYCH_UNPOISON(data, size_bytes);
#else
  if (guard_bytes_ > 0) {
    // The pattern, then the size: what lies between the two shows a write past the end.
    const std::size_t granted = stats_.granted_bytes - before;
    std::fill(data + size_bytes, data + granted - sizeof size_bytes, kGuardByte);
    std::memcpy(data + granted - sizeof size_bytes, &size_bytes, sizeof size_bytes);
  }
#endif
  return data;
}

void MemoryPool::set_limit(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  limit_bytes_ = bytes;
}

MemoryPool::Block MemoryPool::find(const std::byte* data) {
  if (!heap_.contains(data)) {
    const auto found = direct_.find(data);
    return found == direct_.end() ? Block{} : Block{found->second, kNoSlab, 0};
  }
  const std::uint32_t tag = heap_.tag(data);
  if (tag == 0) return {};
  if ((tag & kSpanTag) != 0) {
    if (reinterpret_cast<std::uintptr_t>(data) % kUnit_bytes != 0) return {};
    return {(tag & ~kSpanTag) * kUnit_bytes, kNoSlab, 0};
  }
  const Slab& slab = slabs_[tag - 1];
  const SlabClass& c = classes_[slab.size_class];
  const auto offset = static_cast<std::size_t>(data - slab.data);
  const auto object = static_cast<std::uint32_t>(offset / c.object_bytes);
  const bool handed_out = (slab.free >> object & 1) == 0;
  if (offset % c.object_bytes != 0 || !handed_out) return {};
  return {c.object_bytes, tag - 1, object};
}

void MemoryPool::check_end(const std::byte* data, std::size_t granted_bytes) const {
  std::size_t size_bytes = 0;
  const std::byte* end = data + granted_bytes - sizeof size_bytes;
  std::memcpy(&size_bytes, end, sizeof size_bytes);
  const bool whole = size_bytes <= granted_bytes - guard_bytes_ &&
                     std::all_of(data + size_bytes, end, [](std::byte b) { return b == kGuardByte; });
  TRIPTYCH_CHECK(whole, "memory pool: written past the end of the block at {}, {} bytes with its rounding",
                 static_cast<const void*>(data), granted_bytes);
}

void MemoryPool::release(std::byte* data) {
  const std::scoped_lock lock(mutex_);
  const Block block = find(data);
  TRIPTYCH_CHECK(block.granted_bytes > 0,
                 "memory pool: {} is no block of this pool, or was released before, or is not its beginning",
                 static_cast<const void*>(data));
#ifndef TRIPTYCH_ASAN
  if (guard_bytes_ > 0) check_end(data, block.granted_bytes);
#endif
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  for (const AllocationKind kind : {AllocationKind::kBuffer, AllocationKind::kChunk, AllocationKind::kKvPage})
    note_released(kind, address, address);
  TRIPTYCH_POISON(data, block.granted_bytes);
  stats_.granted_bytes -= block.granted_bytes;
  --stats_.n_blocks;
  if (block.slab != kNoSlab) {
    release_object(block);
  } else if (heap_.contains(data)) {
    heap_.tag(data) = 0;
    heap_.release(data, block.granted_bytes / kUnit_bytes);
  } else {
    TRIPTYCH_UNPOISON(data, block.granted_bytes);  // whatever is mapped here next
    munmap(data, block.granted_bytes);
    ++stats_.n_system_calls;
    direct_bytes_ -= block.granted_bytes;
    direct_.erase(data);
  }
  note_use();
}

// Keeps what was in use lately and a little more, so that what a step needs again and again is not given
// back.
void MemoryPool::note_use() noexcept {
  if (++n_calls_of_stretch_ > kStretch_calls) {
    n_calls_of_stretch_ = 0;
    recent_peak_bytes_[1] = std::exchange(recent_peak_bytes_[0], 0);
  }
  recent_peak_bytes_[0] = std::max(recent_peak_bytes_[0], stats_.granted_bytes);
  stats_.peak_granted_bytes = std::max(stats_.peak_granted_bytes, stats_.granted_bytes);
  const std::size_t most = std::max(recent_peak_bytes_[0], recent_peak_bytes_[1]);
  // What is mapped by itself takes its part: no more is kept for spans than those had.
  const std::size_t limit =
      (most + std::min(most / 32, kMostSpare_bytes) + options_.keep_bytes - direct_bytes_) / kUnit_bytes;
  if (heap_.backed_units() > limit) heap_.shrink_to(limit);
}

void MemoryPool::trim() {
  const std::scoped_lock lock(mutex_);
  for (std::uint32_t i = 0; i < slabs_.size(); ++i)
    if (slabs_[i].data != nullptr && slabs_[i].free == kAllFree) drop_slab(i);
  heap_.shrink_to(0);
  recent_peak_bytes_[0] = recent_peak_bytes_[1] = 0;
}

void MemoryPool::set_huge_pages(HugePages huge_pages) {
  const std::scoped_lock lock(mutex_);
  heap_.set_huge_pages(huge_pages);
}

MemoryPoolStats MemoryPool::stats() const {
  const std::scoped_lock lock(mutex_);
  MemoryPoolStats out = stats_;
  out.reserved_bytes = heap_.backed_units() * kUnit_bytes + direct_bytes_;
  out.n_system_calls += heap_.n_system_calls();
  return out;
}

}  // namespace triptych
