#include "base/memory_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "base/asan.h"
#include "base/error.h"

namespace triptych {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

MemoryPoolOptions small_regions() {
  MemoryPoolOptions out;
  out.region_bytes = 32 * kMiB;
  return out;
}

template <typename Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Sizes as an engine asks for: small ones, tiles, spans of all kinds, now and then a very large one.
std::size_t random_size(std::mt19937& rng) {
  const auto up_to = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(1, n)(rng); };
  switch (up_to(8)) {
    case 1:
    case 2:
      return up_to(2048);
    case 3:
      return std::size_t{4096} << up_to(5) >> 1;
    case 4:
      return up_to(70000);
    case 5:
      return 98304;  // announced below
    case 6:
      return up_to(400) == 1 ? 40 * kMiB : up_to(3 * kMiB);
    default:
      return up_to(512 * 1024);
  }
}

// A model of what is handed out: blocks by address, each filled with its own byte.
class Model {
 public:
  explicit Model(MemoryPool& pool) : pool_(pool) {}
  ~Model() {
    while (!blocks_.empty()) release(0);
  }

  void allocate(std::size_t size_bytes) {
    std::byte* data = pool_.allocate(size_bytes);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % MemoryPool::kAlignment_bytes, 0u);
    if (size_bytes > kMiB) {
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % (2 * kMiB), 0u);
    }
    const auto next = blocks_.lower_bound(data);
    if (next != blocks_.end()) {
      ASSERT_LE(data + size_bytes, next->first);
    }
    if (next != blocks_.begin()) {
      ASSERT_GE(data, std::prev(next)->first + std::prev(next)->second.size_bytes);
    }
    const auto fill = static_cast<unsigned char>(++n_made_);
    std::memset(data, fill, size_bytes);
    blocks_.emplace(data, Block{size_bytes, fill});
    in_use_bytes_ += size_bytes;
  }

  void release(std::size_t which) {
    const auto it = std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(which % blocks_.size()));
    const Block block = it->second;
    const auto expected = static_cast<std::byte>(block.fill);
    for (std::size_t i = 0; i < block.size_bytes; i += i % 4096 == 4032 ? 64 : 63)
      ASSERT_EQ(it->first[i], expected) << "at " << i << " of " << block.size_bytes;
    ASSERT_EQ(it->first[block.size_bytes - 1], expected);
    pool_.release(it->first);
    in_use_bytes_ -= block.size_bytes;
    blocks_.erase(it);
  }

  std::size_t size() const { return blocks_.size(); }
  std::size_t in_use_bytes() const { return in_use_bytes_; }

 private:
  struct Block {
    std::size_t size_bytes;
    unsigned char fill;
  };
  MemoryPool& pool_;
  std::map<std::byte*, Block> blocks_;
  std::size_t in_use_bytes_ = 0;
  unsigned n_made_ = 0;
};

void run_random_trace(MemoryPool& pool, unsigned seed, int n_steps) {
  std::mt19937 rng(seed);
  Model model(pool);
  // Phases that grow and phases that shrink, so that blocks of all ages lie beside each other.
  for (int step = 0; step < n_steps; ++step) {
    const bool grows = step / 500 % 2 == 0;
    const bool take = model.size() == 0 || rng() % 8 < (grows ? 5U : 3U);
    if (take && model.in_use_bytes() < 24 * kMiB) {
      ASSERT_NO_FATAL_FAILURE(model.allocate(random_size(rng)));
    } else if (model.size() > 0) {
      ASSERT_NO_FATAL_FAILURE(model.release(rng()));
    }
  }
}

TEST(MemoryPool, RandomTracesAgainstAModel) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    for (const bool check_bounds : {false, true}) {
      MemoryPoolOptions options = small_regions();
      options.check_bounds = check_bounds;
      MemoryPool pool(options);
      pool.add_size(98304);
      run_random_trace(pool, seed, 3000);
      const MemoryPoolStats stats = pool.stats();
      EXPECT_EQ(stats.granted_bytes, 0u);
      EXPECT_EQ(stats.n_blocks, 0u);
      EXPECT_GT(stats.n_allocations, 500);
      pool.trim();
      EXPECT_EQ(pool.stats().reserved_bytes, 0u);
    }
  }
}

TEST(MemoryPool, ThreadsAtOnce) {
  MemoryPool pool(small_regions());
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i)
    threads.emplace_back([&pool, i] { run_random_trace(pool, 100 + i, 1000); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.stats().n_blocks, 0u);
}

TEST(MemoryPool, BlocksTravelBetweenThreads) {
  MemoryPool pool(small_regions());
  std::vector<std::byte*> blocks;
  std::thread maker([&] {
    for (std::size_t i = 1; i <= 300; ++i) blocks.push_back(pool.allocate(i * 500));
  });
  maker.join();
  std::thread breaker([&] {
    for (std::byte* block : blocks) pool.release(block);
  });
  breaker.join();
  EXPECT_EQ(pool.stats().n_blocks, 0u);
}

// The tail of a power of two is given back, so mixed spans lose less than a unit each.
TEST(MemoryPool, SpansWasteLessThanAUnit) {
  MemoryPoolOptions options;
  options.check_bounds = false;
  MemoryPool pool(options);
  std::size_t wanted = 0;
  for (const std::size_t size : {5 * kMiB + 1, 3 * kMiB - 7, 700 * std::size_t{1000}, 9 * kMiB, 65 * kMiB}) {
    pool.allocate(size);
    wanted += size;
  }
  const MemoryPoolStats stats = pool.stats();
  EXPECT_GE(stats.granted_bytes, wanted);
  EXPECT_LE(stats.granted_bytes, wanted + 5 * (PageHeap::kUnit_bytes + 64));
  EXPECT_EQ(stats.reserved_bytes, stats.granted_bytes);  // nothing else is resident
}

TEST(MemoryPool, FreeMemoryIsUsedAgainBeforeMoreIsTaken) {
  MemoryPool pool;
  std::byte* first = pool.allocate(6 * kMiB);
  pool.allocate(100);
  pool.release(first);
  const std::size_t reserved = pool.stats().reserved_bytes;
  EXPECT_EQ(pool.allocate(5 * kMiB), first);
  EXPECT_EQ(pool.stats().reserved_bytes, reserved);
  const std::int64_t n_calls = pool.stats().n_system_calls;
  for (int i = 0; i < 1000; ++i) pool.release(pool.allocate(700 * 1024));
  EXPECT_EQ(pool.stats().n_system_calls, n_calls);
}

// Free memory may be a 32nd of the peak and the part that is kept; the rest goes back.
TEST(MemoryPool, ReservedFollowsUse) {
  MemoryPoolOptions options;
  options.keep_bytes = kMiB;
  options.check_bounds = false;
  MemoryPool pool(options);
  std::mt19937 rng(5);
  std::vector<std::byte*> blocks;
  std::size_t peak = 0;
  for (int i = 0; i < 3000; ++i) {
    if (blocks.size() < 40 || rng() % 2 == 0) {
      blocks.push_back(pool.allocate(100 * 1024 + rng() % (2 * kMiB)));
    } else {
      std::swap(blocks[rng() % blocks.size()], blocks.back());
      pool.release(blocks.back());
      blocks.pop_back();
    }
    const MemoryPoolStats stats = pool.stats();
    peak = std::max(peak, stats.granted_bytes);
    ASSERT_LE(stats.reserved_bytes, peak + peak / 32 + kMiB + kMiB / 4) << i;
  }
}

// Where a 32nd of the peak would be more, 16 MiB are kept. The large block takes the part of what is used, so
// all that stays beside it is kept memory: free blocks of 1 MiB that lie between others in use.
TEST(MemoryPool, AtMost16MiBAreKeptOfALargePeak) {
  MemoryPoolOptions options;
  options.keep_bytes = 2 * kMiB;
  options.check_bounds = false;
  MemoryPool pool(options);
  constexpr std::size_t kBlock_bytes = kMiB - 64;  // a unit's room for the guard of AddressSanitizer
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 1024; ++i) blocks.push_back(pool.allocate(kBlock_bytes));
  const std::size_t peak_bytes = pool.stats().granted_bytes;
  ASSERT_GT(peak_bytes / 32, 24 * kMiB);
  for (std::size_t i = 0; i < blocks.size(); i += 2) pool.release(blocks[i]);
  std::byte* large = pool.allocate(512 * kMiB - 4096);
  ASSERT_LE(pool.stats().granted_bytes, peak_bytes);
  const std::size_t kept_bytes = pool.stats().reserved_bytes - peak_bytes;
  EXPECT_LE(kept_bytes, 16 * kMiB + options.keep_bytes);
  EXPECT_GE(kept_bytes, 15 * kMiB + options.keep_bytes);
  pool.release(large);
  for (std::size_t i = 1; i < blocks.size(); i += 2) pool.release(blocks[i]);
}

// A large block in place of many small ones is no reason to keep the memory of those.
TEST(MemoryPool, BlocksMappedByThemselvesCount) {
  MemoryPoolOptions options;
  options.check_bounds = false;
  MemoryPool pool(options);
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 15; ++i) blocks.push_back(pool.allocate(10 * kMiB));
  const std::size_t peak = pool.stats().granted_bytes;
  for (std::byte* block : blocks) pool.release(block);
  std::byte* large = pool.allocate(150 * kMiB);
  EXPECT_LE(pool.stats().reserved_bytes, peak + peak / 32 + options.keep_bytes + kMiB);
  pool.release(large);
}

TEST(MemoryPool, MistakesAreNamed) {
  for (const std::size_t size : {std::size_t{100}, std::size_t{16384}, std::size_t{100000}, 40 * kMiB}) {
    MemoryPool pool(small_regions());
    std::byte* data = pool.allocate(size);
    std::byte* other = pool.allocate(size);
    EXPECT_THAT(error_of([&] { pool.release(data + 64); }), testing::HasSubstr("no block of this pool"));
    pool.release(data);
    EXPECT_THAT(error_of([&] { pool.release(data); }), testing::HasSubstr("released before"));
    std::byte foreign[64];
    EXPECT_THAT(error_of([&] { pool.release(foreign); }), testing::HasSubstr("no block of this pool"));
    EXPECT_THAT(error_of([&] { pool.release(nullptr); }), testing::HasSubstr("no block of this pool"));
    pool.release(other);  // and the pool is as it was
    EXPECT_EQ(pool.stats().n_blocks, 0u);
  }
}

#ifndef TRIPTYCH_ASAN
TEST(MemoryPool, WritesPastTheEndAreFound) {
  MemoryPoolOptions options = small_regions();
  options.check_bounds = true;
  for (const std::size_t size : {std::size_t{100}, std::size_t{16384}, std::size_t{100001}, 40 * kMiB}) {
    MemoryPool pool(options);
    std::byte* data = pool.allocate(size);
    const std::byte before = data[size];
    data[size] = std::byte{1};
    EXPECT_THAT(error_of([&] { pool.release(data); }), testing::HasSubstr("written past the end"));
    data[size] = before;
    pool.release(data);
  }
}
#else
TEST(MemoryPoolDeathTest, AddressSanitizerSeesMisuse) {
  MemoryPool pool(small_regions());
  for (const std::size_t size : {std::size_t{100}, std::size_t{16384}, std::size_t{100001}, 40 * kMiB}) {
    volatile std::byte* data = pool.allocate(size);
    EXPECT_DEATH(data[size] = std::byte{1}, "use-after-poison");
  }
  volatile std::byte* gone = pool.allocate(5000);
  pool.release(const_cast<std::byte*>(gone));
  EXPECT_DEATH(gone[0] = std::byte{1}, "use-after-poison");
}
#endif

TEST(MemoryPool, TooMuchIsAnError) {
  MemoryPool pool;
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX / 2, std::size_t{1} << 46})
    EXPECT_THAT(error_of([&] { pool.allocate(size); }), testing::HasSubstr("no memory for"));
  EXPECT_EQ(pool.stats().n_blocks, 0u);
  pool.release(pool.allocate(1));
}

/// Reserved huge pages of 2 MiB that nobody has; 0 where the system has none.
std::size_t free_huge_pages() {
  std::size_t n = 0;
  std::ifstream("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages") >> n;
  return n;
}

TEST(MemoryPool, ALimitRefusesWhatIsBeyondIt) {
  MemoryPool pool;
  std::byte* first = pool.allocate(8192);
  pool.set_limit(pool.stats().granted_bytes + 8192);
  EXPECT_THROW(pool.allocate(100'000), Error);
  std::byte* second = pool.allocate(4096);
  EXPECT_THROW(pool.allocate(8192), Error);
  pool.release(first);
  first = pool.allocate(8192);
  pool.set_limit(0);
  std::byte* third = pool.allocate(100'000);
  for (std::byte* block : {first, second, third}) pool.release(block);
  EXPECT_EQ(pool.stats().n_blocks, 0U);
}

TEST(MemoryPool, ReservedHugePagesOrAMessageThatSaysWhatToDo) {
  MemoryPoolOptions options;
  options.huge_pages = HugePages::kReserved;
  const std::size_t n_free = free_huge_pages();
  if (n_free < 64) {  // a pool reserves 64 MiB at a time, or less
    if (n_free > 0)
      GTEST_SKIP() << n_free << " free huge pages: too few to expect success, too many for an error";
    EXPECT_THAT(error_of([&] { MemoryPool pool(options); }), testing::HasSubstr("vm.nr_hugepages"));
    return;
  }
  MemoryPool pool(options);
  std::byte* data = pool.allocate(3 * kMiB);
  std::memset(data, 1, 3 * kMiB);
  EXPECT_LE(free_huge_pages() + 2, n_free) << "3 MiB were written, but not to huge pages";
  pool.release(data);
  EXPECT_EQ(pool.stats().n_blocks, 0u);
}

// Pages of a cache: beside each other, and what one gave back serves the next. Without the announcement each
// would be cut out of a power of two of its own.
TEST(MemoryPool, AnnouncedSizesLieInSlabs) {
  constexpr std::size_t kPage_bytes = 20480 - 64;  // room for the guard of AddressSanitizer
  MemoryPoolOptions options;
  options.check_bounds = false;
  MemoryPool pool(options);
  pool.add_size(kPage_bytes);
  std::vector<std::byte*> pages;
  for (int i = 0; i < 8; ++i) pages.push_back(pool.allocate(kPage_bytes));
  for (int i = 1; i < 8; ++i) EXPECT_EQ(pages[static_cast<std::size_t>(i)] - pages[0], i * 20480);
  pool.release(pages[3]);
  EXPECT_EQ(pool.allocate(kPage_bytes), pages[3]);
  MemoryPool other(options);
  std::byte* first = other.allocate(kPage_bytes);
  EXPECT_NE(other.allocate(kPage_bytes) - first, 20480);
}

}  // namespace
}  // namespace triptych
