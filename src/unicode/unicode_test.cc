// UTF-8 and characters: what tokenizers and templates both rest on, and where Python differs.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "unicode/properties.h"
#include "unicode/python.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

TEST(Utf8, EveryCharacterSurvivesARoundTrip) {
  std::string text;
  std::size_t n = 0;
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 7) {
    if (c >= 0xD800 && c < 0xE000) continue;
    utf8::append(text, c);
    ++n;
  }
  EXPECT_TRUE(utf8::is_valid(text));
  EXPECT_EQ(utf8::count(text), n);
  EXPECT_EQ(utf8::sanitize(text), text);
  EXPECT_EQ(utf8::sanitize_bytewise(text), text);
  std::size_t bounded = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t start = i;
    const char32_t c = utf8::next(text, i);
    ASSERT_EQ(utf8::next_bounded(text, bounded), c);
    ASSERT_EQ(bounded, i);
    ASSERT_EQ(utf8::previous(text, i), start);
  }
}

TEST(Utf8, NextBoundedStaysInsideACutCharacter) {
  for (const std::string_view whole : {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"})
    for (std::size_t n = 1; n < whole.size(); ++n) {
      const std::string cut(whole.substr(0, n));
      std::size_t i = 0;
      utf8::next_bounded(cut, i);
      EXPECT_EQ(i, n);
    }
}

// The euro sign without its last byte, between letters; a lone continuation byte; an overlong slash.
TEST(Utf8, TwoWaysToReplaceWhatIsNotValid) {
  EXPECT_EQ(utf8::sanitize("a\xE2\x82z"), "a\uFFFDz");
  EXPECT_EQ(utf8::sanitize_bytewise("a\xE2\x82z"), "a\uFFFD\uFFFDz");
  for (auto* const sanitize : {&utf8::sanitize, &utf8::sanitize_bytewise}) {
    EXPECT_EQ((*sanitize)("\x80"), "\uFFFD");
    EXPECT_EQ((*sanitize)("\xC0\xAF"), "\uFFFD\uFFFD");
    EXPECT_EQ((*sanitize)("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD") << "a surrogate";
  }
}

TEST(Python, SpacesAreWhiteSpaceAndFourSeparators) {
  for (char32_t c = 0; c < 0x110000; ++c)
    ASSERT_EQ(python::is_space(c), unicode::is_white_space(c) || (c >= 0x1C && c <= 0x1F))
        << static_cast<unsigned>(c);
  EXPECT_TRUE(python::is_space(0x3000));
  EXPECT_FALSE(unicode::is_white_space(0x1C));
  EXPECT_FALSE(python::is_space(0x200B));
}

TEST(Python, NumbersAreMoreThanTheCategory) {
  EXPECT_TRUE(python::is_numeric(0x4E09) && !unicode::is_numeric(0x4E09)) << "three, as an ideograph";
  EXPECT_TRUE(python::is_numeric(0xBD) && unicode::is_numeric(0xBD)) << "one half";
  EXPECT_TRUE(python::is_digit(0xB2) && !python::is_decimal(0xB2)) << "superscript two";
}

TEST(Python, CasesOfSeveralCharacters) {
  std::string out;
  python::append_upper(out, 0xDF);
  python::append_title(out, 0xFB01);
  python::append_fold(out, 0xDF);
  unicode::append_lower(out, 0x130);
  EXPECT_EQ(out, "SSFissi\u0307");
  EXPECT_TRUE(python::is_final_sigma("\u039F\u03A3", 2));
  EXPECT_FALSE(python::is_final_sigma("\u03A3\u039F", 0));
}

}  // namespace
}  // namespace triptych
