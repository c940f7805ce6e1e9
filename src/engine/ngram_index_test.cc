#include "engine/ngram_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "base/rng.h"

namespace triptych {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::int32_t> drafted(int min_n, int max_n, const std::vector<std::int32_t>& ids, int n_tokens) {
  NgramIndex index(min_n, max_n);
  for (const std::int32_t id : ids) index.append(id);
  std::vector<std::int32_t> out;
  index.continuation(index.find(), n_tokens, out);
  return out;
}

// The same by looking at every place.
NgramIndex::Match found_by_search(int min_n, int max_n, const std::vector<std::int32_t>& ids) {
  NgramIndex::Match best;
  const auto size = static_cast<std::int64_t>(ids.size());
  for (std::int64_t place = size - 2; place >= 0; --place) {
    int n = 0;
    while (n < max_n && n <= place && ids[static_cast<std::size_t>(place - n)] >= 0 &&
           ids[static_cast<std::size_t>(place - n)] == ids[static_cast<std::size_t>(size - 1 - n)])
      ++n;
    if (n >= min_n && n > best.n) best = {n, place + 1};
  }
  return best;
}

TEST(NgramIndex, ProposesWhatFollowed) {
  EXPECT_THAT(drafted(2, 3, {5, 6, 7, 8, 9, 1, 6, 7}, 2), ElementsAre(8, 9));
  EXPECT_THAT(drafted(2, 3, {5, 6, 7, 8, 9, 1, 7}, 2), IsEmpty());  // one token alone is too few
  EXPECT_THAT(drafted(1, 3, {5, 6, 7, 8, 9, 1, 7}, 2), ElementsAre(8, 9));
  EXPECT_THAT(drafted(2, 3, {}, 2), IsEmpty());
  EXPECT_THAT(drafted(2, 3, {4}, 2), IsEmpty());
}

TEST(NgramIndex, LongerMatchesGoBeforeLaterOnes) {
  EXPECT_THAT(drafted(2, 3, {1, 2, 3, 40, 9, 2, 3, 50, 1, 2, 3}, 1), ElementsAre(40));
  EXPECT_THAT(drafted(2, 2, {1, 2, 3, 40, 9, 2, 3, 50, 1, 2, 3}, 1), ElementsAre(50));
}

TEST(NgramIndex, RepeatsWhatReachesTheEnd) {
  EXPECT_THAT(drafted(2, 4, {9, 1, 2, 1, 2, 1, 2}, 5), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(drafted(1, 4, {3, 3}, 3), ElementsAre(3, 3, 3));
}

TEST(NgramIndex, PicturesMatchNothingAndEndADraft) {
  constexpr std::int32_t kRow = NgramIndex::kNoToken;
  EXPECT_THAT(drafted(2, 2, {1, kRow, kRow, kRow, 2, kRow, kRow}, 2), IsEmpty());
  EXPECT_THAT(drafted(2, 2, {1, 2, 3, kRow, 4, 1, 2}, 4), ElementsAre(3));
}

TEST(NgramIndex, FindsWhatASearchOverAllPlacesFinds) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    const int n_ids = 2 + static_cast<int>(rng.next_u64() % 12);
    const int min_n = 1 + static_cast<int>(rng.next_u64() % 3);
    const int max_n = min_n + static_cast<int>(rng.next_u64() % 3);
    NgramIndex index(min_n, max_n);
    std::vector<std::int32_t> ids;
    // No n-gram comes more often than a lookup compares.
    for (int i = 0; i < NgramIndex::kMaxPlaces; ++i) {
      const auto id = static_cast<std::int32_t>(rng.next_u64() % static_cast<std::uint64_t>(n_ids + 1)) - 1;
      ids.push_back(id);
      index.append(id);
      const NgramIndex::Match got = index.find();
      const NgramIndex::Match expected = found_by_search(min_n, max_n, ids);
      ASSERT_EQ(got.n, expected.n) << round << " " << i;
      ASSERT_EQ(got.n > 0 ? got.following : 0, expected.n > 0 ? expected.following : 0) << round << " " << i;
    }
  }
}

TEST(NgramIndex, AMillionTokensOfOneIdTakeNoQuadraticTime) {
  NgramIndex index(2, 4);
  const auto start = std::chrono::steady_clock::now();
  std::int64_t n_found = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    index.append(i % 3 == 0 ? 1 : 2);
    n_found += index.find().n;
  }
  EXPECT_GT(n_found, 3'000'000);
  // A scan over all tokens at each would be 5e11 comparisons, minutes at least.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

}  // namespace
}  // namespace triptych
