// Blocks by references: when they are free again, and what a copy is.
#include "engine/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/testing/page_record.h"

namespace triptych {
namespace {

using testing::ElementsAre;

TEST(BlockPool, ABlockIsFreeWhenItsLastHolderLetsGo) {
  test::PageRecord cache(3);
  BlockPool pool(cache);
  EXPECT_EQ(pool.n_blocks(), 3);
  EXPECT_EQ(pool.n_free(), 3);
  const std::int32_t a = pool.allocate();
  const std::int32_t b = pool.allocate();
  EXPECT_NE(a, b);
  const std::int32_t both[] = {a, b};
  pool.share(both);
  pool.release(both);
  EXPECT_EQ(pool.n_free(), 1);
  EXPECT_EQ(pool.n_references(a), 1);
  EXPECT_TRUE(cache.released.empty());
  pool.release({&b, 1});
  EXPECT_EQ(pool.n_free(), 2);
  EXPECT_THAT(cache.released, ElementsAre(b)) << "its memory goes back at once";
  EXPECT_EQ(pool.allocate(), b) << "the one freed last is warm";
}

TEST(BlockPool, AFullPoolSaysHowLargeItIs) {
  test::PageRecord cache(2);
  BlockPool pool(cache);
  pool.allocate();
  pool.allocate();
  EXPECT_THAT([&] { pool.allocate(); },
              testing::Throws<Error>(testing::AllOf(
                  testing::Property(&Error::code, ErrorCode::kOutOfMemory),
                  testing::Property(&Error::what, testing::HasSubstr("all 2 blocks of 64 tokens")))));
}

TEST(BlockPool, ACopyIsItsHoldersOwn) {
  test::PageRecord cache(3);
  BlockPool pool(cache);
  const std::int32_t a = pool.allocate();
  const std::int32_t b = pool.copy(a);
  EXPECT_THAT(cache.copied, ElementsAre(testing::Pair(a, b)));
  EXPECT_EQ(pool.n_references(a), 1);
  EXPECT_EQ(pool.n_references(b), 1);
  cache.fails_to_copy = true;
  EXPECT_THROW(pool.copy(a), Error);
  EXPECT_EQ(pool.n_free(), 1) << "a copy that failed holds nothing";
}

TEST(BlockPool, BlocksOfTokens) {
  EXPECT_EQ(blocks_for(0), 0);
  EXPECT_EQ(blocks_for(1), 1);
  EXPECT_EQ(blocks_for(64), 1);
  EXPECT_EQ(blocks_for(65), 2);
}

}  // namespace
}  // namespace triptych
