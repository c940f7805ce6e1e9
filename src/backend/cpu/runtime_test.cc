#include "backend/cpu/runtime.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

namespace triptych::cpu {
namespace {

// Blocks are zeroed, aligned and apart, small ones share pieces, and all outlive what gave them.
TEST(WeightMemory, TakesZeroedBlocksThatStay) {
  auto memory = std::make_unique<WeightMemory>();
  std::vector<Buffer> blocks;
  std::set<const void*> pieces;
  for (const std::size_t size : {std::size_t{1}, std::size_t{64}, std::size_t{100}, std::size_t{20} << 20,
                                 std::size_t{60} << 20, std::size_t{60} << 20, std::size_t{65} << 20}) {
    blocks.push_back(memory->take(size));
    const Buffer& block = blocks.back();
    ASSERT_EQ(block.size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % Buffer::kAlignment_bytes, 0U);
    EXPECT_TRUE(
        std::all_of(block.data(), block.data() + size, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(block.data(), static_cast<int>(blocks.size()), size);
    pieces.insert(block.owner().get());
  }
  EXPECT_EQ(pieces.size(), 3U);  // 80 of 128 MiB, then 60 more do not fit; 65 MiB by themselves
  memory.reset();
  for (std::size_t i = 0; i < blocks.size(); ++i)
    EXPECT_TRUE(std::all_of(blocks[i].data(), blocks[i].data() + blocks[i].size_bytes(),
                            [&](std::byte b) { return b == static_cast<std::byte>(i + 1); }));
}

TEST(WeightMemory, ReusedMemoryIsZeroedAgain) {
  for (int round = 0; round < 3; ++round) {
    WeightMemory memory;
    const Buffer block = memory.take(std::size_t{1} << 20);
    EXPECT_EQ(block.data()[12345], std::byte{0});
    std::memset(block.data(), 255, block.size_bytes());
  }
}

}  // namespace
}  // namespace triptych::cpu
