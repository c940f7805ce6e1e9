#include "text/regex_scanner.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::string_view kSpace = RegexScanner::kSpace;
constexpr std::string_view kHexDigit = RegexScanner::kHexDigit;
constexpr std::array<std::pair<std::string_view, std::string_view>, 30> kLongCategories = {{
    {"Letter", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Other_Punctuation", "Po"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Control", "Cc"},
    {"Format", "Cf"},
    {"Other", "C"},
}};
// POSIX names, also written \p{Alpha}: the items of a class that equals them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kPosix = {{
    {"alpha", R"(\p{Alphabetic})"},
    {"digit", R"(\p{Nd})"},
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"upper", R"(\p{Uppercase})"},
    {"lower", R"(\p{Lowercase})"},
    {"space", kSpace},
    {"punct", R"(\p{P}$+<=>^`|~)"},
    {"xdigit", kHexDigit},
}};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

static bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

void RegexScanner::unsupported(std::string_view what) const {
  fail(ErrorCode::kUnsupported, "{}: the pattern uses {}, which this build cannot do: {}", where_, what,
       text_);
}

void RegexScanner::invalid(std::string_view what) const {
  fail(ErrorCode::kInvalidFile, "{}: not a valid pattern: {}: {}", where_, what, text_);
}

char RegexScanner::take() {
  if (at_end()) invalid("it ends too early");
  return text_[at_++];
}

std::string_view RegexScanner::take_character() {
  if (at_end()) invalid("it ends too early");
  const std::string_view out = text_.substr(at_, utf8::length_of(text_[at_]));
  at_ += out.size();
  return out;
}

std::string_view RegexScanner::single_escape(char c) {
  switch (c) {
    case 't':
      return "\\t";
    case 'n':
      return "\\n";
    case 'r':
      return "\\r";
    case 'f':
      return "\\f";
    case 'v':
      return "\\x{0b}";
    case 'a':
      return "\\x{07}";
    case 'e':
      return "\\x{1b}";
    default:
      return {};
  }
}

std::string RegexScanner::code_point(char kind) {
  std::string digits;
  if (kind == 'x' && peek("{")) {
    ++at_;
    for (char c = take(); c != '}'; c = take()) digits.push_back(c);
  } else {
    const std::size_t most = kind == 'u' ? 4 : 2;
    while (digits.size() < most && !at_end() && is_hex(text_[at_])) digits.push_back(take());
    if (kind == 'u' && digits.size() != 4) invalid("\\u without four digits");
  }
  unsigned long value = 0;
  if (digits.empty() || digits.size() > 6) invalid("a bad code point");
  for (const char c : digits) {
    if (!is_hex(c)) invalid("a bad code point");
    value = value * 16 + static_cast<unsigned long>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) invalid("a code point outside Unicode");
  if (kind == 'x' && digits.size() == 2 && value >= 0x80 && text_[at_ - 1] != '}')
    unsupported("a raw byte \\xHH");
  return fmt::format("\\x{{{:x}}}", value);
}
std::string RegexScanner::property(bool negated) {
  std::string name;
  if (peek("{")) {
    ++at_;
    for (char c = take(); c != '}'; c = take()) name.push_back(c);
    if (name.starts_with("^")) {
      negated = !negated;
      name.erase(0, 1);
    }
  } else {
    unsupported("\\p without braces");
  }
  const std::string_view letter = negated ? "\\P{" : "\\p{";
  for (const auto& [full, brief] : kLongCategories)
    if (lower(full) == lower(name)) return fmt::format("{}{}}}", letter, brief);
  for (const auto& [posix, items] : kPosix) {
    if (posix != lower(name)) continue;
    if (!negated) return std::string(items);
    unsupported("a negated POSIX property");
  }
  if (name.empty() ||
      name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789 ") !=
          std::string::npos)
    invalid("a bad property name");
  if (name.size() <= 2) return fmt::format("{}{}}}", letter, name);
  if (name == "Any" || name == "Alphabetic" || name == "Uppercase" || name == "Lowercase" ||
      name == "White_Space" || name == "Emoji" || name == "Ideographic" || name == "Extended_Pictographic" ||
      name == "Emoji_Presentation")
    return fmt::format("{}{}}}", letter, name);
  return fmt::format("{}sc:{}}}", letter, name);
}

std::string_view RegexScanner::posix(std::string_view name) const {
  for (const auto& [posix_name, items] : kPosix)
    if (posix_name == name) return items;
  unsupported(fmt::format("[:{}:]", name));
}

}  // namespace triptych
