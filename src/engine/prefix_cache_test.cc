// Who holds the pages of beginnings, which of them are found, and in what order they go.
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
constexpr std::size_t kPageBytes = 100;
constexpr std::size_t kAnyBytes = std::numeric_limits<std::size_t>::max();

// A sequence of text as the engine holds it.
struct Text {
  std::vector<std::int32_t> tokens, positions;
  PrefixChain chain{prefix_root({}, KvDType::kF32, ""), {}};
  std::vector<std::int32_t> blocks;

  // n tokens 1, 2, 3, ..., those from `n_same` on different.
  explicit Text(std::int64_t n, std::int64_t n_same = kAnyLength, std::int32_t difference = 1000) {
    for (std::int64_t i = 0; i < n; ++i) {
      tokens.push_back(static_cast<std::int32_t>(i) + 1 + (i >= n_same ? difference : 0));
      positions.push_back(static_cast<std::int32_t>(i));
    }
  }
  PrefixTokens view() const { return {tokens, positions}; }
};

class PrefixCacheTest : public testing::Test {
 protected:
  // A sequence is computed: its full pages are published.
  void compute(PrefixCache& cache, Text& text, std::int64_t n_prompt = 10) {
    const std::int64_t n_blocks = blocks_for(text.view().size());
    while (static_cast<std::int64_t>(text.blocks.size()) < n_blocks) text.blocks.push_back(pool_.allocate());
    for (std::size_t i = 0; i < text.tokens.size() / kBlockTokens; ++i)
      text.blocks[i] = cache.publish(text.chain, text.view(), n_prompt, i, text.blocks[i]).block;
  }
  void end(PrefixCache& cache, Text& text, std::int64_t n_prompt = 10) {
    cache.publish_rest(text.chain, text.view(), n_prompt, text.blocks.back());
    pool_.release(text.blocks);
    text.blocks.clear();
  }
  void keep(PrefixCache& cache, Text text, std::int64_t n_prompt = 10) {
    compute(cache, text, n_prompt);
    end(cache, text, n_prompt);
  }
  static std::int64_t n_found(PrefixCache& cache, Text text) {
    return cache.find(text.chain, text.view()).n_tokens;
  }

  test::PageRecord pages_{12};
  BlockPool pool_{pages_};
};

TEST_F(PrefixCacheTest, RequestsThatRunSharePagesToo) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, kAnyLength);
  Text first(200);
  compute(cache, first);  // three full pages and eight tokens
  EXPECT_EQ(pool_.n_free(), 8);
  EXPECT_EQ(pool_.n_idle(), 0) << "a sequence uses them";
  Text second(150);
  const PrefixCache::Match match = cache.take(second.chain, second.view());
  EXPECT_EQ(match.n_tokens, 149) << "the last one's logits are wanted";
  EXPECT_THAT(match.blocks, ElementsAre(first.blocks[0], first.blocks[1], first.blocks[2]));
  EXPECT_EQ(pool_.n_references(first.blocks[0]), 3);
  EXPECT_EQ(pool_.n_users(first.blocks[0]), 2);
  EXPECT_EQ(match.n_idle_whole, 0);
  EXPECT_FALSE(match.idle_part);
  pool_.release(match.blocks);
  end(cache, first);
  EXPECT_EQ(pool_.n_free(), 8);
  EXPECT_EQ(pool_.n_idle(), 4) << "three full pages and the rest";
  EXPECT_EQ(n_found(cache, Text(201)), 200);
  cache.clear();
  EXPECT_EQ(pool_.n_free(), 12);
  EXPECT_TRUE(pages_.copied.empty()) << "who writes copies";
}

// k requests of one prefix of three pages and an own page each.
TEST_F(PrefixCacheTest, ThePrefixIsStoredOnce) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, kAnyLength);
  std::vector<Text> all;
  for (int k = 0; k < 4; ++k) {
    Text& text = all.emplace_back(250, 192, 1000 * (k + 1));
    PrefixCache::Match match = cache.take(text.chain, text.view());
    EXPECT_EQ(match.n_tokens, k == 0 ? 0 : 192);
    text.blocks = match.blocks;
    compute(cache, text);
    EXPECT_EQ(pool_.n_blocks() - pool_.n_free(), 3 + (k + 1));
  }
}

// Two that were computed at the same time: one copy stays.
TEST_F(PrefixCacheTest, TheSecondOfTwoEqualPagesGivesWay) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, kAnyLength);
  Text a(130), b(130);
  for (int i = 0; i < 3; ++i) {
    a.blocks.push_back(pool_.allocate());
    b.blocks.push_back(pool_.allocate());
  }
  compute(cache, a);
  EXPECT_EQ(pool_.n_free(), 6);
  compute(cache, b);
  EXPECT_EQ(pool_.n_free(), 8);
  EXPECT_EQ(a.blocks[0], b.blocks[0]);
  EXPECT_EQ(a.blocks[1], b.blocks[1]);
  EXPECT_NE(a.blocks[2], b.blocks[2]) << "not full";
  end(cache, a);
  end(cache, b);
  EXPECT_EQ(pool_.n_idle(), 3) << "the same rest once";
  EXPECT_EQ(pool_.n_free(), 9);
}

TEST_F(PrefixCacheTest, ABeginningThatEndsInAPageIsFound) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, kAnyLength);
  keep(cache, Text(200));
  const auto match = [&](Text text) { return cache.find(text.chain, text.view()); };
  EXPECT_EQ(match(Text(200, 100)).n_tokens, 100);
  EXPECT_EQ(match(Text(200, 100)).blocks.size(), 2U);
  EXPECT_EQ(match(Text(200, 100)).n_idle_whole, 1);
  EXPECT_TRUE(match(Text(200, 100)).idle_part);
  EXPECT_EQ(match(Text(200, 128)).n_tokens, 128);
  EXPECT_EQ(match(Text(200, 128)).blocks.size(), 2U);
  EXPECT_EQ(match(Text(200, 0)).n_tokens, 0);
  EXPECT_EQ(match(Text(30)).n_tokens, 29) << "less than a page";
  EXPECT_EQ(match(Text(500)).n_tokens, 200);
}

TEST_F(PrefixCacheTest, TheLongestOfSeveralContinuationsIsFound) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, kAnyLength);
  keep(cache, Text(100, 80, 1000));
  keep(cache, Text(100, 90, 2000));
  keep(cache, Text(100, 70, 3000));
  EXPECT_EQ(n_found(cache, Text(100)), 90);
  EXPECT_EQ(n_found(cache, Text(100, 70, 3000)), 99);
}

// What grows replaces its own beginning.
TEST_F(PrefixCacheTest, APageTakesThePlaceOfItsBeginning) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, kAnyLength);
  keep(cache, Text(70));
  keep(cache, Text(90));
  EXPECT_EQ(cache.n_pages(), 2U);
  keep(cache, Text(80));
  EXPECT_EQ(cache.n_pages(), 2U) << "it is in the longer one";
  keep(cache, Text(128));
  EXPECT_EQ(cache.n_pages(), 2U);
  EXPECT_EQ(n_found(cache, Text(128)), 127);
  EXPECT_EQ(pool_.n_free(), 10);
}

TEST_F(PrefixCacheTest, LeastRecentlyUsedGoFirstAndLeavesBeforeParents) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, kAnyLength);
  keep(cache, Text(192));            // 1 2 3
  keep(cache, Text(192, 64, 1000));  // 1 4 5
  keep(cache, Text(64, 0, 5000));    // 6
  ASSERT_EQ(cache.n_pages(), 6U);
  EXPECT_EQ(n_found(cache, Text(193)), 192);  // 1 2 3 are used
  const auto found = [&] {
    // Looking is using: the order that these leave is that in which they are asked for.
    return std::vector<std::int64_t>{n_found(cache, Text(193, 64, 1000)), n_found(cache, Text(65, 0, 5000)),
                                     n_found(cache, Text(193))};
  };
  EXPECT_TRUE(cache.evict_one());
  EXPECT_THAT(found(), ElementsAre(128, 64, 192)) << "5, the end of what was not used for longest";
  EXPECT_TRUE(cache.evict_one());
  EXPECT_THAT(found(), ElementsAre(64, 64, 192)) << "4";
  EXPECT_TRUE(cache.evict_one());
  EXPECT_THAT(found(), ElementsAre(64, 0, 192)) << "6; page 1 is used by the other";
  EXPECT_TRUE(cache.evict_one());
  EXPECT_THAT(found(), ElementsAre(64, 0, 128)) << "3";
  EXPECT_TRUE(cache.evict_one());
  EXPECT_TRUE(cache.evict_one());
  EXPECT_THAT(found(), ElementsAre(0, 0, 0));
  EXPECT_FALSE(cache.evict_one());
  EXPECT_EQ(pool_.n_free(), 12);
  EXPECT_EQ(cache.n_evicted_pages(), 6);
}

TEST_F(PrefixCacheTest, PagesInUseAreNotEvictedForRoom) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, kAnyLength);
  Text running(128);
  compute(cache, running);
  EXPECT_FALSE(cache.evict_one());
  keep(cache, Text(64, 0, 5000));
  EXPECT_TRUE(cache.evict_one());
  EXPECT_FALSE(cache.evict_one());
  EXPECT_EQ(n_found(cache, Text(129)), 128);
}

TEST_F(PrefixCacheTest, HoldsNoMoreThanItsBytes) {
  PrefixCache cache(pool_, 3 * kPageBytes + 99, kPageBytes, kAnyLength);
  keep(cache, Text(64, 0, 1000));
  keep(cache, Text(192));
  EXPECT_EQ(cache.n_pages(), 3U);
  EXPECT_LE(cache.size_bytes(), 3 * kPageBytes);
  EXPECT_EQ(n_found(cache, Text(65, 0, 1000)), 0);
  EXPECT_EQ(n_found(cache, Text(193)), 192);
  // One that is longer than all that fits keeps its beginning.
  keep(cache, Text(384, 0, 2000));
  EXPECT_EQ(cache.n_pages(), 3U);
  EXPECT_EQ(n_found(cache, Text(384, 0, 2000)), 192);
  EXPECT_EQ(pool_.n_free(), 9);
}

TEST_F(PrefixCacheTest, WhatMayBeWrongIsForgottenWithAllBehindIt) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, kAnyLength);
  Text good(64);
  compute(cache, good);
  Text bad(200);
  bad.blocks = cache.take(bad.chain, bad.view()).blocks;
  compute(cache, bad);
  cache.forget(bad.chain.parent(2), bad.blocks[2]);
  EXPECT_EQ(n_found(cache, Text(200)), 192) << "another block: not what was published";
  cache.forget(bad.chain.parent(2), bad.blocks[1]);
  EXPECT_EQ(n_found(cache, Text(200)), 64);
  EXPECT_EQ(pool_.n_references(bad.blocks[2]), 1);
}

TEST_F(PrefixCacheTest, APageWithoutTheOneBeforeItIsNotKept) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, kAnyLength);
  Text text(140);
  for (int i = 0; i < 3; ++i) text.blocks.push_back(pool_.allocate());
  EXPECT_FALSE(cache.publish(text.chain, text.view(), 10, 1, text.blocks[1]).is_new);
  cache.publish_rest(text.chain, text.view(), 10, text.blocks[2]);
  EXPECT_TRUE(cache.empty());
}

TEST_F(PrefixCacheTest, LongSequencesMayNotBeShared) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, 100);
  keep(cache, Text(90));
  EXPECT_EQ(n_found(cache, Text(100)), 90);
  EXPECT_EQ(n_found(cache, Text(101)), 0) << "its base is another";
  keep(cache, Text(90, 0, 1000), 101);
  EXPECT_EQ(n_found(cache, Text(90, 0, 1000)), 0) << "the prompt's was another";
  keep(cache, Text(140, 0, 2000), 80);
  EXPECT_EQ(n_found(cache, Text(100, 0, 2000)), 64) << "the second page ends beyond";
}

TEST_F(PrefixCacheTest, KeepsNothingWhenItMayHoldNothing) {
  for (const std::size_t max_bytes : {std::size_t{0}, kPageBytes - 1}) {
    PrefixCache cache(pool_, max_bytes, kPageBytes, kAnyLength);
    keep(cache, Text(160));
    EXPECT_TRUE(cache.empty());
    EXPECT_FALSE(cache.enabled());
    EXPECT_EQ(pool_.n_free(), 12);
  }
}

TEST_F(PrefixCacheTest, CountsWhatWasLookedForAndFound) {
  PrefixCache cache(pool_, kAnyBytes, kPageBytes, kAnyLength);
  keep(cache, Text(100));
  Text next(120);
  pool_.release(cache.take(next.chain, next.view()).blocks);
  EXPECT_EQ(cache.n_queried_tokens(), 120);
  EXPECT_EQ(cache.n_hit_tokens(), 100);
}

}  // namespace
}  // namespace triptych
