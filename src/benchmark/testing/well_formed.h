// Pages of HTML that tests look at.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

/// A tag at the beginning of a text: its name, and how it stands; nothing when it is none.
struct HtmlTag {
  std::string name;
  bool closes = false;    // </name>
  bool is_alone = false;  // <name/>
  bool is_sound = false;  // attributes have names and quoted values
};

inline HtmlTag read_tag(std::string_view text) {
  HtmlTag out;
  std::size_t at = 1;  // behind "<"
  const auto next = [&] { return at < text.size() ? text[at] : '\0'; };
  const auto word = [&] {
    const std::size_t begin = at;
    while (std::isalnum(static_cast<unsigned char>(next())) != 0 || next() == '-' || next() == ':') ++at;
    return std::string(text.substr(begin, at - begin));
  };
  const auto skip_blanks = [&] {
    while (next() == ' ' || next() == '\n') ++at;
  };
  out.closes = next() == '/';
  if (out.closes) ++at;
  out.name = word();
  for (skip_blanks(); std::isalpha(static_cast<unsigned char>(next())) != 0; skip_blanks()) {
    word();
    if (text.substr(at, 2) != "=\"") return out;
    const std::size_t end = text.find_first_of("\"<", at + 2);
    if (end == std::string_view::npos || text[end] == '<') return out;
    at = end + 1;
  }
  out.is_alone = next() == '/';
  if (out.is_alone) ++at;
  out.is_sound = !out.name.empty() && next() == '>';
  return out;
}

/// Every tag is closed in order, every attribute quoted, and nothing is fetched.
inline void expect_well_formed(const std::string& html) {
  std::vector<std::string> open;
  std::size_t at = html.find('<', 1);  // behind the document type
  while (at != std::string::npos) {
    const HtmlTag tag = read_tag(std::string_view(html).substr(at));
    ASSERT_TRUE(tag.is_sound) << html.substr(at, 200);
    if (tag.closes) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), tag.name);
      open.pop_back();
    } else if (!tag.is_alone) {
      open.push_back(tag.name);
    }
    at = html.find('<', at + 1);
  }
  EXPECT_TRUE(open.empty());
  for (const char* outside : {"src=", "href=", "url(", "@import", "<script"})
    EXPECT_THAT(html, testing::Not(testing::HasSubstr(outside)));
}

}  // namespace triptych
