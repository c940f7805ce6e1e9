#include "tensor/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"

namespace triptych {
namespace {

TEST(Arena, TensorsAreAlignedAndApart) {
  Arena arena(256);
  std::vector<TensorView> views;
  for (int i = 0; i < 20; ++i) {
    const TensorView t = arena.make(DType::kF32, {3, i});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % 64, 0u);
    EXPECT_TRUE(t.is_contiguous());
    std::memset(t.data(), i, t.size_bytes());
    views.push_back(t);
  }
  for (std::size_t i = 0; i < views.size(); ++i)
    for (std::size_t b = 0; b < views[i].size_bytes(); ++b)
      ASSERT_EQ(static_cast<std::size_t>(views[i].data()[b]), i);
  for (std::size_t i = 1; i < views.size(); ++i) EXPECT_NE(views[i].data(), views[i - 1].data());
}

TEST(Arena, SteadyStepsAllocateNothing) {
  Arena arena(1024);
  const auto step = [&] {
    arena.reset();
    for (int i = 1; i < 30; ++i) {
      arena.make(DType::kF32, {i, 50});
      ArenaScope scope(arena);
      arena.make(DType::kF16, {i * 100});
    }
  };
  step();
  EXPECT_GT(arena.n_chunk_allocations(), 1);
  step();  // merges
  const std::int64_t n = arena.n_chunk_allocations();
  const std::size_t reserved = arena.reserved_bytes();
  for (int i = 0; i < 50; ++i) step();
  EXPECT_EQ(arena.n_chunk_allocations(), n);
  EXPECT_EQ(arena.reserved_bytes(), reserved);
  EXPECT_GE(reserved, arena.peak_bytes());
}

TEST(Arena, RewindReusesMemory) {
  Arena arena(4096);
  arena.make(DType::kF32, {10});
  const Arena::Mark mark = arena.mark();
  const std::size_t in_use = arena.bytes_in_use();
  EXPECT_EQ(in_use, 64u);
  const TensorView a = arena.make(DType::kF32, {100});
  EXPECT_EQ(arena.bytes_in_use(), 64u + 448);
  arena.rewind(mark);
  EXPECT_EQ(arena.bytes_in_use(), in_use);
  EXPECT_EQ(arena.make(DType::kF32, {100}).data(), a.data());
  EXPECT_EQ(arena.peak_bytes(), 64u + 448);
  EXPECT_EQ(arena.n_chunk_allocations(), 1);
}

// A rewind across chunks keeps them for what follows, also when a later request skips a chunk that is too
// small.
TEST(Arena, RewindAcrossChunks) {
  Arena arena(64);
  const Arena::Mark start = arena.mark();
  std::vector<std::byte*> first;
  for (const std::size_t size : {64u, 128u, 64u, 1024u, 64u}) first.push_back(arena.make_bytes(size));
  const std::int64_t n = arena.n_chunk_allocations();
  arena.rewind(start);
  EXPECT_EQ(arena.bytes_in_use(), 0u);
  for (const std::size_t size : {1024u, 64u}) {
    std::byte* data = arena.make_bytes(size);
    std::memset(data, 1, size);
  }
  EXPECT_EQ(arena.n_chunk_allocations(), n);
  arena.reset();
  EXPECT_EQ(arena.bytes_in_use(), 0u);
  arena.make_bytes(1024 + 64);
  EXPECT_EQ(arena.n_chunk_allocations(), n + 1);  // the one merged chunk
}

TEST(Arena, UsesTheAllocatorGiven) {
  std::vector<std::size_t> sizes;
  Arena arena(1000, [&](std::size_t size) {
    sizes.push_back(size);
    return Buffer::allocate(size);
  });
  EXPECT_TRUE(sizes.empty());  // memory is taken on first use
  const std::span<int> ids = arena.make_span<int>(10);
  EXPECT_EQ(ids.size(), 10u);
  EXPECT_EQ(sizes, std::vector<std::size_t>{1000});
  arena.make_bytes(5000);
  EXPECT_EQ(sizes.size(), 2u);
  EXPECT_GE(sizes[1], 5000u);
  arena.release();
  EXPECT_EQ(arena.reserved_bytes(), 0u);
  EXPECT_NE(arena.make_bytes(1), nullptr);
}

TEST(Arena, TooMuchIsAnErrorAndChangesNothing) {
  Arena arena;
  arena.make_bytes(64);
  const std::size_t in_use = arena.bytes_in_use();
  for (const std::size_t size :
       {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() / 2})
    try {
      arena.make_bytes(size);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    }
  EXPECT_THROW(arena.make(DType::kF64, {std::numeric_limits<std::int64_t>::max()}), Error);
  EXPECT_EQ(arena.bytes_in_use(), in_use);
  EXPECT_NE(arena.make_bytes(64), nullptr);
}

// Beside a device's memory there is host memory for what this processor fills; one mark covers both.
TEST(Arena, TwoMemories) {
  std::vector<std::byte> device(4096 + 64);
  int n_device = 0;
  const auto allocate_device = [&](std::size_t size) {
    ++n_device;
    EXPECT_LE(size, 4096U);
    const auto misalignment = reinterpret_cast<std::uintptr_t>(device.data()) % 64;
    return Buffer::wrap(nullptr, device.data() + (64 - misalignment), size, MemoryKind::kDevice);
  };
  Arena arena(4096, allocate_device, Buffer::allocate);
  const TensorView x = arena.make(DType::kF32, {16});
  EXPECT_EQ(x.kind(), MemoryKind::kDevice);
  EXPECT_EQ(x.reshape({4, 4}).row(1).kind(), MemoryKind::kDevice);
  EXPECT_THROW(x.f32(), Error);
  const Arena::Mark mark = arena.mark();
  const TensorView staged = arena.make_host(DType::kF32, {16});
  EXPECT_EQ(staged.kind(), MemoryKind::kHost);
  staged.f32()[0] = 1;
  const std::span<int> ids = arena.make_span<int>(4);
  ids[3] = 1;
  EXPECT_EQ(n_device, 1);
  EXPECT_EQ(arena.n_chunk_allocations(), 2);
  EXPECT_EQ(arena.bytes_in_use(), 64U + 128);
  EXPECT_EQ(arena.high().tensor_bytes, 64U);
  EXPECT_EQ(arena.high().host_bytes, 128U);
  arena.rewind(mark);
  EXPECT_EQ(arena.make_host(DType::kF32, {1}).data(), staged.data());
  const Arena::Extent extent = arena.high();
  arena.reset();
  arena.take(extent);
  EXPECT_EQ(arena.bytes_in_use(), 64U + 128);
  const std::int64_t before = arena.generation();
  arena.release();
  EXPECT_GT(arena.generation(), before);
}

#if defined(__SANITIZE_ADDRESS__)
TEST(ArenaDeathTest, UseAfterRewindIsSeenByTheAddressSanitizer) {
  Arena arena;
  const Arena::Mark mark = arena.mark();
  volatile std::byte* data = arena.make_bytes(64);
  arena.rewind(mark);
  EXPECT_DEATH(data[0] = std::byte{1}, "use-after-poison");
}
#endif

}  // namespace
}  // namespace triptych
