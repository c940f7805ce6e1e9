// Networks of states and the automaton over them: what matches, what may still match, and the bounds.
#include "grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/testing/texts.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

using testing::HasSubstr;
using testing_grammar::all_texts;
using testing_grammar::Matcher;
using Node = GrammarBuilder::Node;

template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

// S -> ( S ) S | nothing
Grammar parentheses() {
  GrammarBuilder b("test");
  const auto s = b.declare("s");
  b.define(s, b.choice({b.sequence({b.literal("("), b.call(s), b.literal(")"), b.call(s)}), b.empty()}));
  return b.build(s);
}

TEST(Grammar, BalancedParentheses) {
  Matcher m(parentheses());
  for (const std::string& text : all_texts("()", 12)) {
    int open = 0;
    bool fits = true;
    for (const char c : text) fits &= (open += c == '(' ? 1 : -1) >= 0;
    ASSERT_EQ(m.begins(text), fits) << text;
    ASSERT_EQ(m.matches(text), fits && open == 0) << text;
  }
}

TEST(Grammar, AStackThatWouldGrowTooDeepIsNotBegun) {
  Matcher m(parentheses());
  std::string open;
  while (m.begins(open + "(")) open += '(';
  EXPECT_EQ(open.size(), kMaxGrammarDepth);
  // There is a way out from everywhere: all that was begun can be ended.
  EXPECT_TRUE(m.matches(open + std::string(open.size(), ')')));
  EXPECT_FALSE(m.matches(open));
}

TEST(Grammar, RulesThatEndWithThemselvesNeedNoStack) {
  GrammarBuilder b("test");
  const auto list = b.declare("list");
  b.define(list, b.sequence({b.literal("a"), b.optional(b.sequence({b.literal(","), b.call(list)}))}));
  Matcher m(b.build(list));
  std::string text = "a";
  for (int i = 0; i < 5000; ++i) text += ",a";
  EXPECT_TRUE(m.matches(text));
  EXPECT_FALSE(m.matches(text + ","));
  EXPECT_TRUE(m.begins(text + ","));
  EXPECT_LT(m.automaton().n_states(), 10U);
}

TEST(Grammar, ChoicesThatLeadNowhereAreNotBegun) {
  GrammarBuilder b("test");
  const auto endless = b.declare("endless");
  b.define(endless, b.sequence({b.literal("x"), b.call(endless)}));
  const auto root = b.declare("root");
  b.define(root, b.choice({b.literal("a"), b.sequence({b.literal("b"), b.call(endless)}),
                           b.sequence({b.literal("c"), b.characters(CharacterSet())})}));
  Matcher m(b.build(root));
  EXPECT_TRUE(m.matches("a"));
  EXPECT_FALSE(m.begins("b"));
  EXPECT_FALSE(m.begins("c"));
  EXPECT_THAT(error_of([&] { b.build(endless); }), HasSubstr("no finite text"));
}

TEST(Grammar, LeftRecursionIsRefusedByName) {
  const auto build = [](bool hidden) {
    GrammarBuilder b("field");
    const auto a = b.declare("first");
    const auto c = b.declare("second");
    const Node before = hidden ? b.optional(b.literal("-")) : b.empty();
    b.define(a, b.choice({b.sequence({before, b.call(c), b.literal("x")}), b.literal("y")}));
    b.define(c, b.choice({b.call(a), b.literal("z")}));
    b.build(a);
  };
  for (const bool hidden : {false, true})
    EXPECT_THAT(error_of([&] { build(hidden); }),
                testing::AllOf(HasSubstr("field: rule "), HasSubstr("left recursion")));
}

TEST(Grammar, RulesThatAreNotDefinedAreRefused) {
  GrammarBuilder b("field");
  const auto a = b.declare("a");
  b.define(a, b.call(b.declare("missing")));
  EXPECT_THAT(error_of([&] { b.build(a); }), HasSubstr("missing is not defined"));
}

TEST(Grammar, CountsAreExact) {
  GrammarBuilder b("test");
  const auto root = b.declare("root");
  b.define(root, b.repeat(b.choice({b.literal("ab"), b.literal("c")}), 2, 5));
  Matcher m(b.build(root));
  for (const std::string& text : all_texts("abc", 8)) {
    int n = 0;
    std::size_t i = 0;
    while (i < text.size()) {
      if (text.compare(i, 2, "ab") == 0)
        i += 2;
      else if (text[i] == 'c')
        ++i;
      else
        break;
      ++n;
    }
    const bool is_whole = i == text.size();
    const bool is_begun = is_whole ? n <= 5 : n < 5 && i + 1 == text.size() && text[i] == 'a';
    ASSERT_EQ(m.matches(text), is_whole && n >= 2 && n <= 5) << text;
    ASSERT_EQ(m.begins(text), is_begun) << text;
  }
}

TEST(Grammar, SizeIsCountedBeforeMemoryIsTaken) {
  const auto nested = [] {
    GrammarBuilder b("field");
    const auto root = b.declare("root");
    Node node = b.literal("ab");
    // 2 copies of 2 copies of ...: 2^41 states.
    for (int i = 0; i < 40; ++i) node = b.sequence({node, node});
    b.define(root, node);
    b.build(root);
  };
  EXPECT_THAT(error_of(nested), HasSubstr("field: the grammar needs more than"));
  const auto many = [] {
    GrammarBuilder b("field");
    for (std::size_t i = 0; i <= kMaxGrammarNodes; ++i) b.empty();
  };
  EXPECT_THAT(error_of(many), HasSubstr("expressions"));
  const auto rules = [] {
    GrammarBuilder b("field");
    for (std::size_t i = 0; i <= kMaxGrammarRules; ++i) b.declare("r");
  };
  EXPECT_THAT(error_of(rules), HasSubstr("rules"));
}

// (a|b)*a(a|b){40}: each text of 40 letters leaves another set of states.
TEST(Grammar, WhatCanBeReadInTooManyWaysEndsWithAnError) {
  GrammarBuilder b("field");
  const auto root = b.declare("root");
  const Node letter = b.words({"a", "b"});
  b.define(root, b.sequence({b.repeat(letter, 0, std::nullopt), b.literal("a"), b.repeat(letter, 40, 40)}));
  auto grammar = std::make_shared<const Grammar>(b.build(root));
  GrammarAutomaton automaton(grammar, 1 << 20);
  automaton.begin_work();
  std::uint32_t bits = 1;
  EXPECT_THAT(error_of([&] {
                GrammarAutomaton::State state = automaton.start();
                for (int i = 0; i < 10'000'000; ++i) {
                  bits = bits * 1664525U + 1013904223U;
                  state = automaton.next(state, (bits >> 31) != 0 ? 'a' : 'b');
                }
              }),
              HasSubstr("too many ways"));
  EXPECT_LT(automaton.bytes(), std::size_t{2} << 20);
}

TEST(Grammar, AnotherAutomatonGoesOnWhereOneStood) {
  auto grammar = std::make_shared<const Grammar>(parentheses());
  GrammarAutomaton one(grammar);
  GrammarAutomaton other(grammar);
  for (const std::string& text : all_texts("()", 8)) {
    const auto state = one.next(one.start(), text);
    if (state == GrammarAutomaton::kDead) continue;
    const auto adopted = other.adopt(one, state);
    ASSERT_EQ(other.may_end(adopted), one.may_end(state)) << text;
    for (const std::string& more : all_texts("()", 5))
      ASSERT_EQ(other.may_end(other.next(adopted, more)), one.may_end(one.next(state, more))) << text << more;
  }
}

TEST(CharacterSet, Utf8RangesAreExactlyItsCharacters) {
  const CharacterSet sets[] = {{{0x41, 0x7A}},     {{0x7F, 0x800}},    {{0x3F, 0xFFFF}},
                               {{0xABC, 0x12345}}, {{0xD000, 0xE100}}, {{0x10FFFE, 0x10FFFF}},
                               {{0, 0x10FFFF}},    {{0x80, 0x80}},     {{0xFFF, 0x1000}, {0x5, 0x5}}};
  for (const CharacterSet& set : sets) {
    for (const CharacterSet& either : {set, set.complement()}) {
      GrammarBuilder b("test");
      const auto root = b.declare("root");
      b.define(root, b.characters(either));
      if (either.empty()) continue;
      Matcher m(b.build(root));
      for (char32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 || c % 0x1000 > 0xFF0 || c > 0x10FF00 ? 1 : 7) {
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        ASSERT_EQ(m.matches(utf8::from_code_point(c)), either.contains(c)) << static_cast<unsigned>(c);
      }
    }
    EXPECT_TRUE(set.intersection(set.complement()).empty());
  }
  Matcher m([] {
    GrammarBuilder b("test");
    const auto root = b.declare("root");
    b.define(root, b.characters(CharacterSet::all()));
    return b.build(root);
  }());
  // Overlong, a surrogate, too large, cut.
  for (const char* bad : {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xFF", "\xE2\x82"})
    EXPECT_FALSE(m.matches(bad));
  EXPECT_TRUE(m.begins("\xE2\x82"));
  EXPECT_FALSE(m.begins("\xED\xA0"));
}

TEST(Grammar, EdgesThatAreLookedAtCountAsWork) {
  GrammarBuilder b("field");
  const auto root = b.declare("root");
  std::vector<GrammarBuilder::Node> ways = {b.sequence({b.literal("a"), b.call(root), b.literal("a")}),
                                            b.sequence({b.literal("b"), b.call(root), b.literal("b")}),
                                            b.literal("c")};
  for (int i = 0; i < 100'000; ++i) ways.push_back(b.literal("\x01"));
  b.define(root, b.choice(ways));
  GrammarAutomaton automaton(std::make_shared<const Grammar>(b.build(root)));
  automaton.begin_work();
  std::uint32_t bits = 1;
  const auto walk = [&](int n_steps) {
    GrammarAutomaton::State state = automaton.start();
    for (int n = 0; n < n_steps; ++n) {
      if (n % 16 == 0) state = automaton.start();
      bits = bits * 1664525U + 1013904223U;
      state = automaton.next(state, static_cast<std::uint8_t>((bits >> 31) != 0 ? 'a' : 'b'));
    }
  };
  EXPECT_THROW(walk(2'000), Error);
}

}  // namespace
}  // namespace triptych
