#include "grammar/gbnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "grammar/testing/texts.h"

namespace triptych {
namespace {

using testing::HasSubstr;
using testing_grammar::all_texts;
using testing_grammar::Matcher;

// Sums and products of one letter, by recursive descent.
class Sums {
 public:
  explicit Sums(std::string_view text) : text_(text) {}
  bool matches() { return sum() && at_ == text_.size(); }

 private:
  bool take(char c) { return at_ < text_.size() && text_[at_] == c && ++at_ > 0; }
  bool sum() {
    if (!product()) return false;
    while (take('+'))
      if (!product()) return false;
    return true;
  }
  bool product() {
    if (!atom()) return false;
    while (take('*'))
      if (!atom()) return false;
    return true;
  }
  bool atom() { return take('x') || (take('(') && sum() && take(')')); }

  std::string_view text_;
  std::size_t at_ = 0;
};

TEST(Gbnf, MatchesWhatADescentParserMatches) {
  Matcher m(compile_gbnf(R"x(# sums
root    ::= product ("+" product)*   # of products
product ::= atom ( "*"
                   atom )*
atom    ::= "x"
          | "(" root ")"
)x",
                         "test"));
  for (const std::string& text : all_texts("x+*()", 7))
    ASSERT_EQ(m.matches(text), Sums(text).matches()) << text;
}

TEST(Gbnf, TermsOfTheNotation) {
  const auto matches = [](const char* grammar, std::string_view text) {
    return Matcher(compile_gbnf(grammar, "test")).matches(text);
  };
  EXPECT_TRUE(matches(R"x(root ::= "a\"\\\n\x41\u00e9\U0001F600")x", "a\"\\\nAé😀"));
  EXPECT_TRUE(matches("root ::= [a-c1\\]^-]+", "abc1]^-"));
  EXPECT_FALSE(matches("root ::= [a-c]+", "abd"));
  EXPECT_TRUE(matches("root ::= [^\"\\n]*", "anything é"));
  EXPECT_FALSE(matches("root ::= [^\"\\n]*", "a\nb"));
  EXPECT_TRUE(matches("root ::= . .", "é\n"));
  EXPECT_TRUE(matches("root ::= \"a\"{2} \"b\"{1,} \"c\"{,2} \"d\"{0,1}", "aabbbccd"));
  EXPECT_FALSE(matches("root ::= \"a\"{2}", "aaa"));
  EXPECT_TRUE(matches("root ::=\n  \"a\" |\n  \"b\"", "b"));
  EXPECT_TRUE(matches("a-b ::= \"x\"\r\nroot ::= a-b a-b\r\n", "xx"));
  EXPECT_TRUE(matches("root ::= \"a\" |", ""));
}

TEST(Gbnf, RefusesWithTheLine) {
  const std::pair<const char*, const char*> all[] = {
      {"start ::= \"a\"", "no rule named root"},
      {"root ::= a", "rule a is not defined"},
      {"\nroot ::= \"a", "line 2: a literal or a class is not closed"},
      {"root ::= (\"a\"", "a group is not closed"},
      {"root ::= \"a\")", "line 1: expected the end of the line"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: rule root is defined twice"},
      {"root = \"a\"", "expected ::= behind root"},
      {"root ::= *", "nothing to repeat"},
      {"root ::= \"a\"{2,1}", "wrong way round"},
      {"root ::= \"a\"{}", "expected counts"},
      {"root ::= \"\\q\"", "behind \\"},
      {"root ::= [z-a]", "wrong way round"},
      {"root ::= root \"a\" | \"b\"", "rule root begins with itself"},
      {"root ::= \"a\" root", "no finite text"},
      {"root ::= \"\\uD800\"", "no character"},
  };
  for (const auto& [grammar, says] : all) try {
      compile_gbnf(grammar, "guided_grammar");
      ADD_FAILURE() << grammar << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith("guided_grammar: "), HasSubstr(says)));
    }
  try {
    compile_gbnf("root ::= <think>", "guided_grammar");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
  EXPECT_THROW(compile_gbnf("root ::= " + std::string(300, '(') + std::string(300, ')'), "test"), Error);
}

TEST(Gbnf, RepeatsOfRepeatsAreFew) {
  EXPECT_NO_THROW(compile_gbnf("root ::= \"a\"?+*", "test"));
  EXPECT_THROW(compile_gbnf("root ::= \"a\"" + std::string(120'000, '?'), "test"), Error);
}

TEST(Gbnf, EdgesAreBoundedAsStatesAre) {
  for (const char* grammar :
       {"root ::= \"a\" \"\"{0,131072}{50}", "root ::= [acegikmoqsuwyACEGIKMOQSUWY]{100000}"}) {
    std::size_t n_bytes = 0;
    try {
      n_bytes = compile_gbnf(grammar, "test").bytes();
    } catch (const Error&) {
    }
    EXPECT_LT(n_bytes, std::size_t{8} << 20) << grammar;
  }
}

}  // namespace
}  // namespace triptych
