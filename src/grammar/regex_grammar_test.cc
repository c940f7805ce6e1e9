// Regular expressions against std::regex on all short texts, and what is refused.
#include "grammar/regex_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <unordered_set>

#include "base/error.h"
#include "grammar/testing/texts.h"

namespace triptych {
namespace {

using testing::HasSubstr;
using testing_grammar::all_texts;
using testing_grammar::Matcher;

constexpr const char* kPatterns[] = {"",
                                     "a",
                                     "ab|ba",
                                     "a*",
                                     "a+b?",
                                     "(ab)*",
                                     "(?:a|b)+1",
                                     "(a|b|)1*",
                                     "[ab]{2}",
                                     "[ab]{1,3}1",
                                     "a{2,}",
                                     "a{0}b",
                                     "(a{1,2}b){2}",
                                     "[^a]b",
                                     "[^a-b]*",
                                     ".a.",
                                     "\\d+",
                                     "\\D\\w\\W",
                                     "[\\d-]+",
                                     "[a\\-1]*",
                                     "a-1",
                                     "\\x61\\u0062",
                                     "(a*)*b",
                                     "((a|b)(1|-))*",
                                     "a??b+?",
                                     "(|a)(|b)",
                                     "^ab$",
                                     "^a|b$",
                                     "-?(0|1[01]*)",
                                     "a|ab|ab1",
                                     "[]a|b",
                                     "(a+)+(b|-)"};

TEST(RegexGrammar, MatchesWhatStdRegexMatches) {
  const auto texts = all_texts("ab1-", 6);
  for (const char* pattern : kPatterns) {
    // std::regex takes [] for an unfinished class; ECMAScript has it match nothing.
    if (std::string_view(pattern).starts_with("[]")) continue;
    SCOPED_TRACE(pattern);
    Matcher m(compile_regex(pattern, "test"));
    const std::regex expected(pattern);
    std::unordered_set<std::string> begun;
    for (const std::string& text : texts)
      if (std::regex_match(text, expected))
        for (std::size_t n = 0; n <= text.size(); ++n) begun.insert(text.substr(0, n));
    for (const std::string& text : texts) {
      ASSERT_EQ(m.matches(text), std::regex_match(text, expected)) << '"' << text << '"';
      // Every pattern above can be ended within three more letters.
      if (text.size() <= 3) {
        ASSERT_EQ(m.begins(text), begun.contains(text)) << '"' << text << '"';
      }
    }
  }
}

TEST(RegexGrammar, SearchesLikeStdRegex) {
  const auto texts = all_texts("ab1-", 5);
  for (const char* pattern :
       {"a", "ab|ba", "^a", "b$", "^ab$", "^a|b$", "(a|b)1", "^", "$", "^$", "a{2}", "[^a]"}) {
    SCOPED_TRACE(pattern);
    GrammarBuilder b("test");
    const auto root = b.declare("root");
    b.define(root, add_regex(b, pattern, {.where = "test", .searches = true}));
    Matcher m(b.build(root));
    const std::regex expected(pattern);
    for (const std::string& text : texts)
      ASSERT_EQ(m.matches(text), std::regex_search(text, expected)) << '"' << text << '"';
  }
}

TEST(RegexGrammar, CharactersAreNotBytes) {
  Matcher any(compile_regex(".", "test"));
  EXPECT_TRUE(any.matches("é"));
  EXPECT_TRUE(any.matches("😀"));
  EXPECT_FALSE(any.matches("\n"));
  EXPECT_FALSE(any.matches("\xE2\x80\xA8")) << "a line separator";
  EXPECT_FALSE(any.matches("\xC3"));
  Matcher range(compile_regex("[а-я]+", "test"));
  EXPECT_TRUE(range.matches("привет"));
  EXPECT_FALSE(range.matches("Привет"));
  Matcher emoji(compile_regex("\\u{1F600}|\\ud83d\\ude01", "test"));
  EXPECT_TRUE(emoji.matches("😀"));
  EXPECT_TRUE(emoji.matches("😁"));
  EXPECT_FALSE(emoji.matches("😂"));
}

TEST(RegexGrammar, LargeCountsStaySmall) {
  const Grammar grammar = compile_regex("(\\w+[ ,]){1,2000}[^\\n]{0,4000}", "test");
  EXPECT_LT(grammar.n_states(), 20'000U);
}

struct Refused {
  const char* pattern;
  ErrorCode code;
  const char* says;
};

TEST(RegexGrammar, RefusesByName) {
  const Refused all[] = {
      {"a(?=b)", ErrorCode::kUnsupported, "byte 3: lookahead"},
      {"(?<!a)b", ErrorCode::kUnsupported, "lookbehind"},
      {"(a)\\1", ErrorCode::kUnsupported, "back reference"},
      {"\\bword", ErrorCode::kUnsupported, "\\b is not supported"},
      {"\\p{L}", ErrorCode::kUnsupported, "\\p"},
      {"(?i)a", ErrorCode::kUnsupported, "a group of this kind"},
      {"(a|^b)", ErrorCode::kUnsupported, "^ behind"},
      {"(a$|b)", ErrorCode::kUnsupported, "$ in a group"},
      {"a$b", ErrorCode::kUnsupported, "$ before the end"},
      {"a++", ErrorCode::kUnsupported, "possessive"},
      {"(a", ErrorCode::kInvalidArgument, "not closed"},
      {"a)", ErrorCode::kInvalidArgument, "closes nothing"},
      {"[a", ErrorCode::kInvalidArgument, "the ] behind a class"},
      {"[b-a]", ErrorCode::kInvalidArgument, "wrong way round"},
      {"[\\d-a]", ErrorCode::kInvalidArgument, "range that begins with a class"},
      {"*a", ErrorCode::kInvalidArgument, "nothing to repeat"},
      {"a**", ErrorCode::kInvalidArgument, "nothing to repeat"},
      {"a{3,2}", ErrorCode::kInvalidArgument, "wrong way round"},
      {"a{999999}", ErrorCode::kInvalidArgument, "a count above"},
      {"a{131072}b{131072}c{131072}", ErrorCode::kInvalidArgument, "more than 262144 states"},
      {"(((a{1000}){1000}){1000}){1000}b\xFF", ErrorCode::kInvalidArgument, "not valid UTF-8"},
      {"\\q", ErrorCode::kInvalidArgument, "\\q means nothing"},
      {"\\u{D800}", ErrorCode::kInvalidArgument, "no character"},
      {"[]", ErrorCode::kInvalidArgument, "no finite text"},
      {"a\\", ErrorCode::kInvalidArgument, "the pattern ends"},
  };
  for (const Refused& one : all) try {
      compile_regex(one.pattern, "guided_regex");
      ADD_FAILURE() << one.pattern << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), one.code) << one.pattern << ": " << error.what();
      EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith("guided_regex: "), HasSubstr(one.says)));
    }
  EXPECT_THROW(compile_regex(std::string(300, '(') + std::string(300, ')'), "test"), Error);
  EXPECT_TRUE(Matcher(compile_regex("a{1,b}", "test")).matches("a{1,b}")) << "no count, so characters";
}

}  // namespace
}  // namespace triptych
