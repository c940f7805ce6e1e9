// Which beginnings are the same, and who holds their blocks.
#include "engine/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "engine/testing/page_record.h"

namespace triptych {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kAnyLength = std::numeric_limits<std::int64_t>::max();

PrefixKey key_of(std::vector<std::int32_t> tokens) {
  PrefixKey out;
  out.positions.resize(tokens.size());
  std::iota(out.positions.begin(), out.positions.end(), 0);
  out.tokens = std::move(tokens);
  return out;
}

// n tokens 1, 2, 3, ..., the last ones different.
PrefixKey key_of(int n, int n_different = 0) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 1);
  for (int i = n - n_different; i < n; ++i) tokens[static_cast<std::size_t>(i)] += 1000;
  return key_of(std::move(tokens));
}

TEST(PrefixKey, CommonBeginningEndsWhereSomethingDiffers) {
  const auto item = [](std::uint64_t high) {
    std::vector<MediaItem> out;
    out.push_back({.plan = {}, .pixels = {}, .text_ids = {}, .fingerprint = {high, 2}});
    return out;
  };
  const MediaRun run{.media_index = 0, .first_media_row = 0, .first_prompt_row = 1, .n_rows = 2};
  PrefixKey prompt;
  prompt.tokens = {5, 9, 9, 6, 7};
  prompt.positions = {0, 0, 1, 1, 1, 2, 2, 3, 3, 4};  // two axes
  prompt.media = media_of({&run, 1}, item(1));
  PrefixKey kept = prompt;
  kept.tokens.push_back(8);
  kept.positions.insert(kept.positions.end(), {4, 5});
  EXPECT_EQ(kept.n_common(prompt), 5);
  EXPECT_EQ(prompt.n_common(kept), 5);
  EXPECT_EQ(kept.n_common(PrefixKey()), 0);
  const auto with = [&](auto change) {
    PrefixKey other = prompt;
    change(other);
    return kept.n_common(other);
  };
  EXPECT_EQ(with([](PrefixKey& k) { k.tokens[3] = 0; }), 3);
  EXPECT_EQ(with([](PrefixKey& k) { k.positions[8] = 9; }), 4);
  EXPECT_EQ(with([](PrefixKey& k) { k.positions[7] = 9; }), 3);
  EXPECT_EQ(with([](PrefixKey& k) { k.media[0].fingerprint.high = 3; }), 1);
  EXPECT_EQ(with([](PrefixKey& k) { k.media[0].text_ids = {4}; }), 1);
  EXPECT_EQ(with([](PrefixKey& k) { k.media[0].run.first_media_row = 1; }), 1);
  EXPECT_EQ(with([](PrefixKey& k) { k.media.clear(); }), 1);
  kept.media[0].fingerprint = {};  // unknown is not equal to unknown
  EXPECT_EQ(with([](PrefixKey& k) { k.media[0].fingerprint = {}; }), 1);
}

class PrefixCacheTest : public testing::Test {
 protected:
  // A sequence of n tokens ended; its blocks are only kept here.
  void keep(PrefixCache& cache, const PrefixKey& key) {
    std::vector<std::int32_t> blocks;
    for (std::int64_t i = 0; i < blocks_for(static_cast<std::int64_t>(key.tokens.size())); ++i)
      blocks.push_back(pool_.allocate());
    cache.put(key, 10, blocks);
    pool_.release(blocks);
  }

  test::PageRecord pages_{8};
  BlockPool pool_{pages_};
};

TEST_F(PrefixCacheTest, SeveralTakersShareWholeBlocksAndCopyTheRest) {
  PrefixCache cache(pool_, 4, kAnyLength);
  keep(cache, key_of(200));  // 4 blocks
  EXPECT_EQ(pool_.n_free(), 4);
  const PrefixCache::Prefix first = cache.take(key_of(150));
  EXPECT_EQ(first.n_tokens, 149) << "the last one's logits are wanted";
  ASSERT_EQ(first.blocks.size(), 3U);
  const PrefixCache::Prefix second = cache.take(key_of(200, 72));
  EXPECT_EQ(second.n_tokens, 128);
  EXPECT_THAT(second.blocks, ElementsAre(first.blocks[0], first.blocks[1]));
  EXPECT_EQ(pool_.n_references(first.blocks[0]), 3);
  EXPECT_EQ(pool_.n_references(first.blocks[2]), 1) << "the taker writes into it";
  ASSERT_EQ(pages_.copied.size(), 1U);
  EXPECT_EQ(pages_.copied[0].second, first.blocks[2]);
  pool_.release(first.blocks);
  pool_.release(second.blocks);
  EXPECT_EQ(pool_.n_free(), 4) << "the entry holds its own still";
  EXPECT_TRUE(cache.evict_one());
  EXPECT_EQ(pool_.n_free(), 8);
  EXPECT_FALSE(cache.evict_one());
}

TEST_F(PrefixCacheTest, WithoutAFreeBlockOnlyWholeOnesAreTaken) {
  PrefixCache cache(pool_, 4, kAnyLength);
  keep(cache, key_of(200));
  std::vector<std::int32_t> others;
  while (pool_.n_free() > 0) others.push_back(pool_.allocate());
  const PrefixCache::Prefix prefix = cache.take(key_of(150));
  EXPECT_EQ(prefix.n_tokens, 128);
  EXPECT_EQ(prefix.blocks.size(), 2U);
}

TEST_F(PrefixCacheTest, ACopyThatFailsLeavesTheWholeBlocks) {
  PrefixCache cache(pool_, 4, kAnyLength);
  keep(cache, key_of(200));
  pages_.fails_to_copy = true;
  const PrefixCache::Prefix prefix = cache.take(key_of(150));
  EXPECT_EQ(prefix.n_tokens, 128);
  EXPECT_EQ(prefix.blocks.size(), 2U);
  EXPECT_EQ(pool_.n_free(), 4);
}

TEST_F(PrefixCacheTest, TheEntryNotUsedForLongestGoes) {
  PrefixCache cache(pool_, 2, kAnyLength);
  const PrefixKey a = key_of({1, 2, 3});
  const PrefixKey b = key_of({4, 5, 6});
  keep(cache, a);
  keep(cache, b);
  EXPECT_EQ(cache.find(a), 2);
  keep(cache, key_of({7, 8, 9}));
  EXPECT_EQ(cache.find(a), 2);
  EXPECT_EQ(cache.find(b), 0);
  EXPECT_EQ(pool_.n_free(), 6);
}

TEST_F(PrefixCacheTest, LongSequencesMayNotBeShared) {
  PrefixCache cache(pool_, 2, 50);
  keep(cache, key_of(60));
  EXPECT_EQ(cache.find(key_of(50)), 49);
  EXPECT_EQ(cache.find(key_of(51)), 0) << "its base is another";
  EXPECT_EQ(cache.take(key_of(51)).n_tokens, 0);
}

TEST_F(PrefixCacheTest, KeepsNothingWhenItMayHoldNothing) {
  PrefixCache cache(pool_, 0, kAnyLength);
  keep(cache, key_of(60));
  EXPECT_TRUE(cache.empty());
  EXPECT_EQ(pool_.n_free(), 8);
}

}  // namespace
}  // namespace triptych
