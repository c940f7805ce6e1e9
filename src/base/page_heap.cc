#include "base/page_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <new>

#include "base/asan.h"
#include "base/error.h"

namespace triptych {
namespace {

constexpr std::size_t kUnitsOfHugePage = PageHeap::kHugePage_bytes / PageHeap::kUnit_bytes;
constexpr std::size_t kMaxRegion_bytes = std::size_t{1} << 30;
constexpr std::size_t kReservedStep_bytes = std::size_t{64} << 20;
// Smaller free blocks are not worth a system call.
constexpr int kMinShrinkOrder = 4;

// Kinds of units in order_of_free: 0 is no first unit of a free block, else order + 1 and perhaps this flag.
constexpr std::uint8_t kBackedFlag = 0x40;

void* map(std::size_t size_bytes, int flags) noexcept {
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

// Calls body(index of word, mask) for the words of a bit set that hold [begin, end).
template <typename Body>
void for_each_word(std::size_t begin, std::size_t end, Body body) {
  while (begin < end) {
    const std::size_t word = begin / 64;
    const std::size_t stop = std::min(end, (word + 1) * 64);
    const std::size_t n = stop - begin;
    const std::uint64_t ones = n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
    if (!body(word, ones << (begin % 64))) return;
    begin = stop;
  }
}

std::size_t reserved_huge_pages() {
  std::size_t n = 0;
  std::ifstream("/proc/sys/vm/nr_hugepages") >> n;
  return n;
}

}  // namespace

// The books of a region lie in a mapping of their own: of zeros that cost nothing until written, and so that
// free memory need not be touched to be listed.
struct PageHeap::Region {
  struct Links {
    UnitId next, previous;
  };
  std::byte* data;
  std::size_t n_units;
  std::byte* mapping;  // what munmap wants: `data` with room for its alignment
  std::size_t mapping_bytes;
  std::uint64_t* backed;        // bit a unit
  std::uint64_t* advised;       // bit a huge page
  std::uint8_t* order_of_free;  // a unit
  std::uint32_t* tags;
  Links* links;
  std::byte* books;
  std::size_t books_bytes;

  std::byte* address(std::size_t unit) const noexcept { return data + unit * kUnit_bytes; }
  // Of the free block that begins here, or -1.
  int order_at(std::size_t unit) const noexcept { return (order_of_free[unit] & ~kBackedFlag) - 1; }
  bool any_backed(std::size_t begin, std::size_t end) const noexcept {
    bool any = false;
    for_each_word(begin, end, [&](std::size_t word, std::uint64_t mask) {
      any = (backed[word] & mask) != 0;
      return !any;
    });
    return any;
  }
};

PageHeap::PageHeap(HugePages huge_pages, std::size_t region_bytes)
    : huge_pages_(huge_pages),
      region_bytes_(std::bit_ceil(std::clamp(region_bytes, kHugePage_bytes, kMaxRegion_bytes))) {
  for (auto& lists : free_) std::fill(std::begin(lists), std::end(lists), kNone);
}

PageHeap::~PageHeap() {
  for (Region* region : regions_) {
    TRIPTYCH_UNPOISON(region->data, region->n_units * kUnit_bytes);
    munmap(region->mapping, region->mapping_bytes);
    munmap(region->books, region->books_bytes);
    delete region;
  }
}

PageHeap::Region* PageHeap::find(const std::byte* data) const noexcept {
  for (Region* region : regions_)
    if (data >= region->data && data < region->data + region->n_units * kUnit_bytes) return region;
  return nullptr;
}

bool PageHeap::add_region(int order) {
  if (regions_.size() >= (std::size_t{kNone} >> kMaxOrder)) return false;
  if (kUnit_bytes << order > region_bytes_) return false;
  regions_.reserve(regions_.size() + 1);
  const bool reserved = huge_pages_ == HugePages::kReserved;
  // Reserved pages are counted when mapped, so little is taken at a time.
  std::size_t size_bytes =
      reserved ? std::max(std::min(region_bytes_, kReservedStep_bytes), kUnit_bytes << order) : region_bytes_;
  const std::size_t slack_bytes = reserved ? 0 : kHugePage_bytes;
#if defined(MAP_HUGETLB)
  const int flags = reserved ? MAP_HUGETLB : 0;
#else
  const int flags = 0;
  if (reserved) return false;
#endif
  void* mapping = nullptr;
  for (;; size_bytes /= 2) {
    mapping = map(size_bytes + slack_bytes, flags);
    ++n_system_calls_;
    if (mapping != nullptr || size_bytes == kHugePage_bytes || size_bytes / 2 < kUnit_bytes << order) break;
  }
  if (mapping == nullptr) return false;

#if defined(MADV_NOHUGEPAGE)
  // Also where the system would give huge pages unasked: they are asked for where whole ones are used.
  if (!reserved) madvise(mapping, size_bytes + slack_bytes, MADV_NOHUGEPAGE);
#endif
  auto* region = new (std::nothrow) Region{};
  const std::size_t n = size_bytes / kUnit_bytes;
  const std::size_t books_bytes = n * (sizeof(Region::Links) + sizeof(std::uint32_t) + 1) + n / 8 + 64 +
                                  (n / kUnitsOfHugePage + 63) / 64 * 8;
  auto* books = region == nullptr ? nullptr : static_cast<std::byte*>(map(books_bytes, 0));
  if (books == nullptr) {
    delete region;
    munmap(mapping, size_bytes + slack_bytes);
    return false;
  }
  region->mapping = static_cast<std::byte*>(mapping);
  region->mapping_bytes = size_bytes + slack_bytes;
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  region->data = region->mapping + ((address + slack_bytes) / kHugePage_bytes * kHugePage_bytes - address);
  if (address % kHugePage_bytes == 0) region->data = region->mapping;
  region->n_units = n;
  region->books = books;
  region->books_bytes = books_bytes;
  region->links = reinterpret_cast<Region::Links*>(books);
  region->backed = reinterpret_cast<std::uint64_t*>(books + n * sizeof(Region::Links));
  region->advised = region->backed + (n + 63) / 64;
  region->tags = reinterpret_cast<std::uint32_t*>(region->advised + (n / kUnitsOfHugePage + 63) / 64);
  region->order_of_free = reinterpret_cast<std::uint8_t*>(region->tags + n);
  regions_.push_back(region);
  const auto id = static_cast<UnitId>((regions_.size() - 1) << kMaxOrder);
  insert(id, std::countr_zero(n), false);
  return true;
}

void PageHeap::set_huge_pages(HugePages huge_pages) {
  if (huge_pages == huge_pages_) return;
  const HugePages before = huge_pages_;
  if (before == HugePages::kReserved)
    fail(ErrorCode::kInvalidArgument, "the memory pool uses reserved huge pages already");
  huge_pages_ = huge_pages;
  if (huge_pages != HugePages::kReserved || add_region(0)) return;
  huge_pages_ = before;
  fail(ErrorCode::kOutOfMemory,
       "no reserved huge pages: the system holds {} of 2 MiB (/proc/sys/vm/nr_hugepages) and none is free; "
       "as root run \"sysctl vm.nr_hugepages=N\", or use huge pages without reserving them (advise)",
       reserved_huge_pages());
}

void PageHeap::insert(UnitId id, int order, bool backed) noexcept {
  Region& region = region_of(id);
  const std::size_t unit = id & ((UnitId{1} << kMaxOrder) - 1);
  UnitId& head = free_[backed ? 1 : 0][order];
  region.order_of_free[unit] =
      static_cast<std::uint8_t>(order + 1) | (backed ? kBackedFlag : std::uint8_t{0});
  region.links[unit] = {head, kNone};
  if (head != kNone) region_of(head).links[head & ((UnitId{1} << kMaxOrder) - 1)].previous = id;
  head = id;
}

void PageHeap::remove(UnitId id) noexcept {
  Region& region = region_of(id);
  const UnitId mask = (UnitId{1} << kMaxOrder) - 1;
  const std::uint8_t kind = region.order_of_free[id & mask];
  const Region::Links links = region.links[id & mask];
  if (links.previous == kNone) {
    free_[(kind & kBackedFlag) != 0 ? 1 : 0][(kind & ~kBackedFlag) - 1] = links.next;
  } else {
    region_of(links.previous).links[links.previous & mask].next = links.next;
  }
  if (links.next != kNone) region_of(links.next).links[links.next & mask].previous = links.previous;
  region.order_of_free[id & mask] = 0;
}

// The smallest free block that is large enough, cut to `order`; one that costs memory already if there is
// one.
PageHeap::UnitId PageHeap::take(int order) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (int backed = 1; backed >= 0; --backed) {
      for (int o = order; o <= kMaxOrder; ++o) {
        const UnitId id = free_[backed][o];
        if (id == kNone) continue;
        remove(id);
        const Region& region = region_of(id);
        const std::size_t unit = id & ((UnitId{1} << kMaxOrder) - 1);
        for (int part = o - 1; part >= order; --part) {
          const std::size_t half = std::size_t{1} << part;
          insert(id + static_cast<UnitId>(half), part,
                 backed != 0 && region.any_backed(unit + half, unit + 2 * half));
        }
        return id;
      }
    }
    if (attempt > 0 || !add_region(order)) break;
  }
  return kNone;
}

// Neighbouring free blocks, some of them backed, that are long enough together though no single one is: spans
// that are no power of two leave such runs.
PageHeap::UnitId PageHeap::take_run(std::size_t n_units) {
  constexpr int kMaxTries = 16;
  constexpr UnitId kMask = (UnitId{1} << kMaxOrder) - 1;
  const int order = static_cast<int>(std::bit_width(n_units)) - 1;
  const std::size_t alignment = n_units * kUnit_bytes > kHugePage_bytes / 2 ? kUnitsOfHugePage : 1;
  UnitId id = free_[1][order];
  for (int i = 0; i < kMaxTries && id != kNone; ++i, id = region_of(id).links[id & kMask].next) {
    const Region& region = region_of(id);
    std::size_t begin = id & kMask;
    std::size_t end = begin + (std::size_t{1} << order);
    while (end - begin < n_units && end < region.n_units && region.order_at(end) >= 0)
      end += std::size_t{1} << region.order_at(end);
    for (int o = 0; o <= order && end - begin < n_units; ++o) {
      const std::size_t size = std::size_t{1} << o;
      if (size > begin || region.order_at(begin - size) != o || (begin - size) % alignment != 0) continue;
      begin -= size;
      o = -1;
    }
    if (end - begin < n_units || begin % alignment != 0) continue;
    const UnitId first = (id & ~kMask) + static_cast<UnitId>(begin);
    for (std::size_t at = begin; at < end;) {
      const std::size_t size = std::size_t{1} << region.order_at(at);
      remove((id & ~kMask) + static_cast<UnitId>(at));
      at += size;
    }
    release_range(first + static_cast<UnitId>(n_units), end - begin - n_units);
    return first;
  }
  return kNone;
}

std::byte* PageHeap::allocate(std::size_t n_units) {
  if (n_units == 0 || n_units > (std::size_t{1} << kMaxOrder)) return nullptr;
  const int order = std::countr_zero(std::bit_ceil(n_units));
  if (!std::has_single_bit(n_units) && free_[1][order] == kNone) {
    const UnitId run = take_run(n_units);
    if (run != kNone) return region_of(run).address(run & ((UnitId{1} << kMaxOrder) - 1));
  }
  const UnitId id = take(order);
  if (id == kNone) return nullptr;
  release_range(id + static_cast<UnitId>(n_units), (std::size_t{1} << order) - n_units);
  return region_of(id).address(id & ((UnitId{1} << kMaxOrder) - 1));
}

void PageHeap::release(std::byte* span, std::size_t n_units) noexcept {
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    const Region& region = *regions_[i];
    if (span < region.data || span >= region.address(region.n_units)) continue;
    const auto unit = static_cast<std::size_t>(span - region.data) / kUnit_bytes;
    release_range(static_cast<UnitId>(i << kMaxOrder | unit), n_units);
  }
}

// Any range as the aligned powers of two it is made of.
void PageHeap::release_range(UnitId id, std::size_t n_units) noexcept {
  while (n_units > 0) {
    const int by_address = std::min(std::countr_zero(id), kMaxOrder);
    const int order = std::min(by_address, static_cast<int>(std::bit_width(n_units)) - 1);
    release_block(id, order);
    id += UnitId{1} << order;
    n_units -= std::size_t{1} << order;
  }
}

void PageHeap::release_block(UnitId id, int order) noexcept {
  const Region& region = region_of(id);
  const UnitId mask = (UnitId{1} << kMaxOrder) - 1;
  const std::size_t first = id & mask;
  bool backed = region.any_backed(first, first + (std::size_t{1} << order));
  for (; (std::size_t{1} << order) < region.n_units; ++order) {
    const UnitId buddy = id ^ (UnitId{1} << order);
    if (region.order_at(buddy & mask) != order) break;
    backed = backed || (region.order_of_free[buddy & mask] & kBackedFlag) != 0;
    remove(buddy);
    id = std::min(id, buddy);
  }
  insert(id, order, backed);
}

void PageHeap::back(std::byte* data, std::size_t size_bytes) noexcept {
  Region* const region = find(data);
  const auto begin = static_cast<std::size_t>(data - region->data) / kUnit_bytes;
  const std::size_t end = (static_cast<std::size_t>(data - region->data) + size_bytes - 1) / kUnit_bytes + 1;
  std::size_t n_new = 0;
  for_each_word(begin, end, [&](std::size_t word, std::uint64_t mask) {
    n_new += static_cast<std::size_t>(std::popcount(mask & ~region->backed[word]));
    region->backed[word] |= mask;
    return true;
  });
  backed_units_ += n_new;
  if (n_new == 0 || huge_pages_ != HugePages::kAdvise) return;
#if defined(MADV_HUGEPAGE)
  // Only whole huge pages inside the range: nothing else becomes resident with them.
  const std::size_t first = (begin + kUnitsOfHugePage - 1) / kUnitsOfHugePage;
  const std::size_t last = end / kUnitsOfHugePage;
  bool all_advised = true;
  for (std::size_t i = first; i < last; ++i) {
    all_advised = all_advised && (region->advised[i / 64] >> (i % 64) & 1) != 0;
    region->advised[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  if (all_advised) return;
  ++n_system_calls_;
  madvise(region->address(first * kUnitsOfHugePage), (last - first) * kHugePage_bytes,
          MADV_HUGEPAGE);  // a hint
#endif
}

// A free block's memory goes back to the system; the block stays.
void PageHeap::give_back(UnitId id, int order) noexcept {
  Region& region = region_of(id);
  const std::size_t begin = id & ((UnitId{1} << kMaxOrder) - 1);
  const std::size_t end = begin + (std::size_t{1} << order);
  remove(id);
  insert(id, order, false);
  for_each_word(begin, end, [&](std::size_t word, std::uint64_t mask) {
    backed_units_ -= static_cast<std::size_t>(std::popcount(region.backed[word] & mask));
    region.backed[word] &= ~mask;
    return true;
  });
  ++n_system_calls_;
  // The whole block: its bounds are multiples of 64 KiB, the largest page a system may have.
  madvise(region.address(begin), (end - begin) * kUnit_bytes, MADV_DONTNEED);
#if defined(MADV_NOHUGEPAGE)
  // Else a small span here would make 2 MiB resident.
  bool advised = false;
  for (std::size_t i = begin / kUnitsOfHugePage; i < end / kUnitsOfHugePage; ++i) {
    advised = advised || (region.advised[i / 64] >> (i % 64) & 1) != 0;
    region.advised[i / 64] &= ~(std::uint64_t{1} << (i % 64));
  }
  if (!advised) return;
  ++n_system_calls_;
  madvise(region.address(begin), (end - begin) * kUnit_bytes, MADV_NOHUGEPAGE);
#endif
}

void PageHeap::shrink_to(std::size_t n_units) noexcept {
  if (huge_pages_ == HugePages::kReserved) return;
  for (int order = kMaxOrder; order >= kMinShrinkOrder && backed_units_ > n_units;) {
    const UnitId id = free_[1][order];
    if (id == kNone) {
      --order;
    } else {
      give_back(id, order);
    }
  }
}

std::uint32_t& PageHeap::tag(const std::byte* data) noexcept {
  Region* const region = find(data);
  return region->tags[static_cast<std::size_t>(data - region->data) / kUnit_bytes];
}

}  // namespace triptych
