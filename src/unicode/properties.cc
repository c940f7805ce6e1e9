#include "unicode/properties.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "unicode/utf8.h"

namespace triptych::unicode {
namespace {

// Characters beyond plane 2 have no decomposition and do not combine (Unicode 15).
constexpr char32_t kTableEnd = 0x30000;

utf8proc_category_t category(char32_t c) noexcept {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

int options_of(Form form) noexcept {
  switch (form) {
    case Form::kNfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case Form::kNfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case Form::kNfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case Form::kNfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return 0;
}

int combining_class(char32_t c) noexcept {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

std::size_t decompose(char32_t c, int options, std::array<utf8proc_int32_t, 32>& out) noexcept {
  int boundary = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out.data(),
                                         static_cast<utf8proc_ssize_t>(out.size()),
                                         static_cast<utf8proc_option_t>(options), &boundary);
  return n < 0 || n > static_cast<utf8proc_ssize_t>(out.size()) ? 0 : static_cast<std::size_t>(n);
}

// One bit per form: the character may change or may compose with what precedes it.
std::vector<unsigned char> build_active_table() {
  std::vector<unsigned char> active(kTableEnd, 0);
  std::vector<bool> composes(kTableEnd, false);
  std::array<utf8proc_int32_t, 32> parts{};
  for (char32_t c = 0xA0; c < kTableEnd; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::size_t n = decompose(c, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, parts);
    for (std::size_t k = 1; k < n; ++k)
      if (parts[k] >= 0 && static_cast<char32_t>(parts[k]) < kTableEnd)
        composes[static_cast<std::size_t>(parts[k])] = true;
  }
  for (char32_t c = 0xA0; c < kTableEnd; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    for (const Form form : {Form::kNfc, Form::kNfd, Form::kNfkc, Form::kNfkd}) {
      const bool compose = form == Form::kNfc || form == Form::kNfkc;
      bool inert = combining_class(c) == 0 && !(compose && composes[c]);
      if (inert) {
        auto n = static_cast<utf8proc_ssize_t>(decompose(c, options_of(form), parts));
        if (compose && n > 1)
          n = utf8proc_normalize_utf32(parts.data(), n, static_cast<utf8proc_option_t>(options_of(form)));
        inert = n == 1 && static_cast<char32_t>(parts[0]) == c;
      }
      if (!inert) active[c] = static_cast<unsigned char>(active[c] | (1U << static_cast<unsigned>(form)));
    }
  }
  return active;
}

}  // namespace

bool is_white_space(char32_t c) noexcept {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) noexcept {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto g = category(c);
  return g == UTF8PROC_CATEGORY_ND || g == UTF8PROC_CATEGORY_NL || g == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) noexcept {
  if (c < 0x80)
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const auto g = category(c);
  return g >= UTF8PROC_CATEGORY_PC && g <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) noexcept {
  const auto g = category(c);
  return g == UTF8PROC_CATEGORY_MN || g == UTF8PROC_CATEGORY_MC || g == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t c) noexcept { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_other(char32_t c) noexcept {
  const auto g = category(c);
  return g == UTF8PROC_CATEGORY_CC || g == UTF8PROC_CATEGORY_CF || g == UTF8PROC_CATEGORY_CO;
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {  // the only unconditional mapping to two characters
    out.append("i\xCC\x87");
  } else {
    utf8::append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool joins_grapheme(char32_t left, char32_t right, int& state) noexcept {
  utf8proc_int32_t s = state;
  const bool boundary = utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(left),
                                                         static_cast<utf8proc_int32_t>(right), &s);
  state = s;
  return !boundary;
}

bool is_inert(Form form, char32_t c) noexcept {
  if (c < 0xA0) return true;
  if (c >= kTableEnd) return true;
  static const std::vector<unsigned char> active = build_active_table();
  return ((active[c] >> static_cast<unsigned>(form)) & 1U) == 0;
}

std::string normalize(Form form, std::string_view utf8) {
  const int options = options_of(form);
  std::vector<utf8proc_int32_t> buffer;
  buffer.reserve(utf8.size());
  std::array<utf8proc_int32_t, 32> parts{};
  for (std::size_t i = 0; i < utf8.size();) {
    const char32_t c = utf8::next(utf8, i);
    const std::size_t n = decompose(c, options, parts);
    if (n == 0)
      buffer.push_back(static_cast<utf8proc_int32_t>(c));
    else
      buffer.insert(buffer.end(), parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(n));
  }
  // Canonical order: utf8proc's own reordering is quadratic in a run of marks, a stable sort is not.
  const auto class_of = [](utf8proc_int32_t c) { return combining_class(static_cast<char32_t>(c)); };
  for (auto from = buffer.begin(); from != buffer.end();) {
    from = std::find_if(from, buffer.end(), [&](auto c) { return class_of(c) != 0; });
    const auto to = std::find_if(from, buffer.end(), [&](auto c) { return class_of(c) == 0; });
    std::stable_sort(from, to, [&](auto a, auto b) { return class_of(a) < class_of(b); });
    from = to;
  }
  auto n = static_cast<utf8proc_ssize_t>(buffer.size());
  if ((options & UTF8PROC_COMPOSE) != 0)
    n = utf8proc_normalize_utf32(buffer.data(), n, static_cast<utf8proc_option_t>(options));
  TRIPTYCH_CHECK(n >= 0, "utf8proc: {}", utf8proc_errmsg(n));
  std::string out;
  out.reserve(utf8.size());
  for (utf8proc_ssize_t k = 0; k < n; ++k)
    utf8::append(out, static_cast<char32_t>(buffer[static_cast<std::size_t>(k)]));
  return out;
}

}  // namespace triptych::unicode
