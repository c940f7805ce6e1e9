// Which beginnings are the same, and that a page's key is made of all its keys and values depend on.
#include "engine/prefix_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

namespace triptych {
namespace {

// 150 tokens on two axes; rows 60 to 99 are rows 3 to 42 of a picture.
struct Prompt {
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(150);
  std::vector<std::int32_t> positions = std::vector<std::int32_t>(300);
  std::vector<MediaRun> runs = {
      {.media_index = 0, .first_media_row = 3, .first_prompt_row = 60, .n_rows = 40}};
  std::vector<std::int32_t> text_ids = {};
  Fingerprint picture = {.low = 1, .high = 2, .upper_low = 3, .upper_high = 4};
  Fingerprint model = {.low = 5};
  KvDType dtype = KvDType::kF16;
  std::string salt = "a";

  Prompt() {
    std::iota(tokens.begin(), tokens.end(), 1);
    std::iota(positions.begin(), positions.end(), 0);
  }
  PrefixTokens view() const { return {tokens, positions}; }
  PrefixChain chain() const {
    std::vector<MediaItem> items(1);
    items[0].fingerprint = picture;
    items[0].text_ids = text_ids;
    return {prefix_root(model, dtype, salt), media_of(runs, items)};
  }
  std::vector<Fingerprint> keys() const {
    PrefixChain own = chain();
    const auto found = own.keys(view());
    return {found.begin(), found.end()};
  }
};

TEST(PrefixKey, EveryFieldIsInTheKey) {
  const std::vector<Fingerprint> keys = Prompt().keys();
  ASSERT_EQ(keys.size(), 2U) << "whole pages only";
  EXPECT_NE(keys[0], keys[1]);
  EXPECT_EQ(Prompt().keys(), keys);
  struct Case {
    const char* what;
    std::function<void(Prompt&)> change;
    std::size_t first_page;  // whose key is another
  };
  const Case cases[] = {
      {"first token", [](Prompt& p) { p.tokens[0] = 9; }, 0},
      {"last token of a page", [](Prompt& p) { p.tokens[63] = 9; }, 0},
      {"token of the second page", [](Prompt& p) { p.tokens[64] = 9; }, 1},
      {"position of the first axis", [](Prompt& p) { p.positions[20] = 9; }, 0},
      {"position of the second axis", [](Prompt& p) { p.positions[129] = 9; }, 1},
      {"picture, lowest bits", [](Prompt& p) { p.picture.low ^= 1U; }, 0},
      {"picture, low half", [](Prompt& p) { p.picture.high ^= 1U; }, 0},
      {"picture, upper half", [](Prompt& p) { p.picture.upper_low ^= 1U; }, 0},
      {"picture, highest bits", [](Prompt& p) { p.picture.upper_high ^= std::uint64_t{1} << 63; }, 0},
      {"text that the tower read", [](Prompt& p) { p.text_ids = {7}; }, 0},
      {"row of the picture", [](Prompt& p) { p.runs[0].first_media_row = 4; }, 0},
      {"place of the picture", [](Prompt& p) { p.runs[0].first_prompt_row = 61; }, 0},
      {"end of the picture", [](Prompt& p) { p.runs[0].n_rows = 39; }, 1},
      {"no picture", [](Prompt& p) { p.runs.clear(); }, 0},
      {"model", [](Prompt& p) { p.model.upper_high = 1; }, 0},
      {"type of the cache", [](Prompt& p) { p.dtype = KvDType::kBF16; }, 0},
      {"salt", [](Prompt& p) { p.salt = "b"; }, 0},
      {"no salt", [](Prompt& p) { p.salt.clear(); }, 0},
  };
  for (const Case& c : cases) {
    Prompt other;
    c.change(other);
    const std::vector<Fingerprint> own = other.keys();
    ASSERT_EQ(own.size(), 2U) << c.what;
    EXPECT_EQ(own[0] != keys[0], c.first_page == 0) << c.what;
    EXPECT_NE(own[1], keys[1]) << c.what << ": what stands before is in every key";
  }
  Prompt behind;
  behind.tokens[149] = 9;  // of a page that is not full
  EXPECT_EQ(behind.keys(), keys);
}

TEST(PrefixKey, UnknownPicturesEndTheChain) {
  Prompt prompt;
  prompt.picture = {};
  EXPECT_EQ(prompt.keys().size(), 0U) << "its rows begin in the first page";
  prompt.runs[0].first_prompt_row = 64;
  EXPECT_EQ(prompt.keys().size(), 1U);
}

TEST(PrefixKey, KeysOfASequenceThatGrowsStayTheSame) {
  const Prompt prompt;
  PrefixChain chain = prompt.chain();
  EXPECT_TRUE(chain.keys(prompt.view().first(63)).empty());
  EXPECT_EQ(chain.keys(prompt.view().first(64)).size(), 1U);
  const Fingerprint first = chain.parent(1);
  EXPECT_EQ(chain.keys(prompt.view()).size(), 2U);
  EXPECT_EQ(chain.parent(1), first);
  EXPECT_EQ(chain.parent(0), chain.root());
  EXPECT_EQ(chain.keys(prompt.view().first(100)).size(), 1U) << "of the tokens that were asked about";
}

TEST(PrefixKey, CommonBeginningEndsWhereSomethingDiffers) {
  const Prompt prompt;
  const PageContents page = prompt.chain().page(prompt.view(), 0);
  ASSERT_EQ(page.n_tokens(), 64);
  ASSERT_EQ(page.media.size(), 1U);
  EXPECT_EQ(page.media[0].first_row, 60);
  EXPECT_EQ(page.media[0].n_rows, 4);
  const PageContents next = prompt.chain().page(prompt.view(), 1);
  EXPECT_EQ(next.media[0].first_media_row, 7);
  const auto common = [&](const std::function<void(Prompt&)>& change, std::int64_t n = kBlockTokens) {
    Prompt other;
    change(other);
    return page.n_common(other.chain().page(other.view(), 0, n));
  };
  EXPECT_EQ(common([](Prompt&) {}), 64);
  EXPECT_EQ(common([](Prompt&) {}, 62), 62) << "in the middle of the picture";
  EXPECT_EQ(common([](Prompt& p) { p.tokens[3] = 0; }), 3);
  EXPECT_EQ(common([](Prompt& p) { p.positions[9] = 0; }), 4);
  EXPECT_EQ(common([](Prompt& p) { p.picture.upper_high = 0; }), 60);
  EXPECT_EQ(common([](Prompt& p) { p.text_ids = {1}; }), 60);
  EXPECT_EQ(common([](Prompt& p) { p.runs[0].first_media_row = 0; }), 60);
  EXPECT_EQ(common([](Prompt& p) { p.runs[0].first_prompt_row = 62; }), 60);
  EXPECT_EQ(common([](Prompt& p) { p.runs[0].n_rows = 2; }), 62);
  EXPECT_EQ(common([](Prompt& p) { p.runs.clear(); }), 60);
  Prompt unknown;
  unknown.picture = {};
  const PageContents own = unknown.chain().page(unknown.view(), 0);
  EXPECT_EQ(own.n_common(own), 60) << "unknown is not equal to unknown";
  EXPECT_EQ(page.n_common(PageContents()), 0);
}

}  // namespace
}  // namespace triptych
