// Masks of a small vocabulary, and what is shared between answers.
#include "grammar/constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "grammar/testing/texts.h"

namespace triptych {
namespace {

using testing::ElementsAre;

// Ids that the mask lets through.
std::vector<std::int32_t> allowed(TokenMasker& masker, Constraint& constraint) {
  std::vector<std::uint32_t> bits(masker.n_mask_words());
  constraint.mask(bits);
  std::vector<std::int32_t> out;
  for (std::size_t id = 0; id < bits.size() * 32; ++id)
    if ((bits[id / 32] >> (id % 32) & 1U) != 0) out.push_back(static_cast<std::int32_t>(id));
  return out;
}

TEST(TokenMasker, AllowsTokensByTheirBytes) {
  TokenMasker masker(std::vector<std::string>{"", "a", "ab", "b", "abc", "a", "\xC3", "\xA9", " a", "c"},
                     false);
  const auto constraint = masker.constrain({.regex = "abc?|é"});
  EXPECT_THAT(allowed(masker, *constraint), ElementsAre(1, 2, 4, 5, 6)) << "two tokens of the same bytes";
  EXPECT_FALSE(constraint->accept(8)) << "a blank";
  EXPECT_FALSE(constraint->accept(0));
  std::string text;
  EXPECT_TRUE(constraint->accept(5, &text));
  EXPECT_THAT(allowed(masker, *constraint), ElementsAre(3));
  EXPECT_FALSE(constraint->may_end());
  EXPECT_TRUE(constraint->accept(3, &text));
  EXPECT_TRUE(constraint->may_end());
  EXPECT_FALSE(constraint->must_end());
  EXPECT_THAT(allowed(masker, *constraint), ElementsAre(9));
  EXPECT_TRUE(constraint->accept(9, &text));
  EXPECT_TRUE(constraint->must_end());
  EXPECT_EQ(text, "abc");
  const auto other = masker.constrain({.regex = "abc?|é"});
  EXPECT_TRUE(other->accept(6));
  EXPECT_THAT(allowed(masker, *other), ElementsAre(7));
}

TEST(TokenMasker, TheFirstTokensBlankDoesNotCount) {
  TokenMasker masker(std::vector<std::string>{" ", " a", "a", " b", "b", "  a"}, true);
  const auto constraint = masker.constrain({.regex = "a b"});
  EXPECT_THAT(allowed(masker, *constraint), ElementsAre(0, 1, 2));
  std::string text;
  EXPECT_TRUE(constraint->accept(1, &text));
  EXPECT_EQ(text, "a");
  EXPECT_THAT(allowed(masker, *constraint), ElementsAre(0, 3)) << "later ones do";
  EXPECT_TRUE(constraint->accept(3, &text));
  EXPECT_EQ(text, "a b");
  const auto blank_first = masker.constrain({.regex = "a b"});
  EXPECT_TRUE(blank_first->accept(0));
  EXPECT_THAT(allowed(masker, *blank_first), ElementsAre(2)) << "only one blank goes";
}

// More states than one automaton may keep: answers go on in a new one, with the same masks.
TEST(TokenMasker, AnswersOutliveTheirAutomaton) {
  TokenMasker masker(std::vector<std::string>{"a", "b"}, false);
  const ConstraintSpec spec = {.regex = "(a|b)*a(a|b){18}"};
  const auto one = masker.constrain(spec);
  const auto waiting = masker.constrain(spec);
  ASSERT_TRUE(waiting->accept(0));
  std::uint32_t bits = 1;
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) {
    bits = bits * 1664525U + 1013904223U;
    if (i % 1000 == 0) {
      ASSERT_THAT(allowed(masker, *one), ElementsAre(0, 1));
    }
    ASSERT_TRUE(one->accept(static_cast<std::int32_t>(bits >> 31), &text));
    if (text.size() > 20) {
      ASSERT_EQ(one->may_end(), text[text.size() - 19] == 'a') << i;
    }
  }
  for (int i = 0; i < 18; ++i) {
    EXPECT_THAT(allowed(masker, *waiting), ElementsAre(0, 1));
    EXPECT_FALSE(waiting->may_end());
    ASSERT_TRUE(waiting->accept(1));
  }
  EXPECT_TRUE(waiting->may_end());
}

TEST(TokenMasker, SeveralThreadsShareOne) {
  std::vector<std::string> tokens = testing_grammar::all_texts("{}\":,ab1 ", 2);
  TokenMasker masker(tokens, false);
  const auto walk = [&](std::uint32_t seed) {
    std::string all;
    for (int round = 0; round < 20; ++round) {
      const auto constraint =
          masker.constrain({.json_schema = round % 2 == 0 ? "{}" : R"({"type":"object"})"});
      std::string text;
      for (int i = 0; i < 30 && !constraint->must_end(); ++i) {
        const auto ids = allowed(masker, *constraint);
        if (ids.empty()) break;
        seed = seed * 1664525U + 1013904223U;
        EXPECT_TRUE(constraint->accept(ids[(seed >> 16) % ids.size()], &text));
      }
      all += text + '\n';
    }
    return all;
  };
  std::vector<std::string> together(4);
  {
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < together.size(); ++i)
      threads.emplace_back([&, i] { together[i] = walk(i); });
    for (std::thread& thread : threads) thread.join();
  }
  for (std::uint32_t i = 0; i < together.size(); ++i) EXPECT_EQ(together[i], walk(i));
}

TEST(TokenMasker, ThreadsCompileAtOnce) {
  TokenMasker masker(std::vector<std::string>{"a", " "}, false);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const auto constraint = masker.constrain({.regex = "\\S\\W."});
      EXPECT_THAT(allowed(masker, *constraint), ElementsAre(0));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenMasker, WhatGrewIsForgotten) {
  constexpr std::size_t kMost = std::size_t{4} << 20;
  TokenMasker masker(std::vector<std::string>{"a", "b"}, false, kMost);
  const auto spec = [](int i) {
    return ConstraintSpec{.regex = "(a|b)*a(a|b){" + std::to_string(16 + i) + "}"};
  };
  for (int i = 0; i < 8; ++i) masker.constrain(spec(i));  // small as yet
  std::uint32_t bits = 1;
  for (int i = 0; i < 8; ++i) {
    const auto one = masker.constrain(spec(i));
    for (int k = 0; k < 20'000; ++k) {
      bits = bits * 1664525U + 1013904223U;
      ASSERT_TRUE(one->accept(static_cast<std::int32_t>(bits >> 31)));
    }
  }
  masker.constrain(spec(0));
  EXPECT_LE(masker.kept_bytes(), kMost);
}

}  // namespace
}  // namespace triptych
