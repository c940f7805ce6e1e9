#include "unicode/python.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "unicode/properties.h"
#include "unicode/python_tables.h"
#include "unicode/utf8.h"

namespace triptych::python {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool in_ranges(std::span<const CodePointRange> ranges, char32_t c) {
  const auto it =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return it != ranges.begin() && c <= std::prev(it)->last;
}

const SpecialCase* special_case(char32_t c) {
  if (c < 0x80) return nullptr;
  const auto it =
      std::lower_bound(kSpecialCases.begin(), kSpecialCases.end(), c,
                       [](const SpecialCase& entry, char32_t value) { return entry.code_point < value; });
  return it != kSpecialCases.end() && it->code_point == c ? &*it : nullptr;
}

bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 ||
             c == 0x2027;
  }
}

}  // namespace

bool is_space(char32_t c) { return unicode::is_white_space(c) || (c >= 28 && c <= 31); }

bool is_line_break(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) { return is_decimal(c) || in_ranges(kOtherDigits, c); }
bool is_numeric(char32_t c) { return unicode::is_numeric(c) || in_ranges(kOtherNumerics, c); }
bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || in_ranges(kOtherLowercase, c); }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || in_ranges(kOtherUppercase, c); }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_identifier_start(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool is_identifier_part(char32_t c) {
  if (c < 0x80) return is_identifier_start(c) || (c >= '0' && c <= '9');
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return is_identifier_start(c);
  }
}

void append_upper(std::string& out, char32_t c) {
  if (const SpecialCase* entry = special_case(c)) {
    out += entry->upper;
  } else {
    utf8::append(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (const SpecialCase* entry = special_case(c)) {
    out += entry->title;
  } else {
    utf8::append(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_fold(std::string& out, char32_t c) {
  if (const SpecialCase* entry = special_case(c)) {
    out += entry->fold;
    return;
  }
  utf8proc_int32_t folded[4] = {};
  int last_boundclass = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 4, UTF8PROC_CASEFOLD,
                                         &last_boundclass);
  for (utf8proc_ssize_t i = 0; i < n && i < 4; ++i) utf8::append(out, static_cast<char32_t>(folded[i]));
}

bool is_final_sigma(std::string_view text, std::size_t pos) {
  bool cased_before = false;
  for (std::size_t i = pos; i > 0;) {
    i = utf8::previous(text, i);
    std::size_t at = i;
    const char32_t c = utf8::next_bounded(text, at);
    if (is_case_ignorable(c)) continue;
    cased_before = is_cased(c);
    break;
  }
  if (!cased_before) return false;
  std::size_t at = pos;
  utf8::next_bounded(text, at);
  while (at < text.size()) {
    const char32_t c = utf8::next_bounded(text, at);
    if (is_case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}

}  // namespace triptych::python
