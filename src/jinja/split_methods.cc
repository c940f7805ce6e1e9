// Methods of str that take text apart, and those that ask what it is made of.
#include <algorithm>
#include <limits>

#include "jinja/builtins.h"
#include "jinja/text_ops.h"
#include "unicode/python.h"
#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

using Range = std::pair<std::size_t, std::size_t>;

Value pieces(Runtime& runtime, const Value& self, const std::vector<Range>& ranges, bool as_tuple = false) {
  std::vector<Value> out;
  out.reserve(ranges.size());
  for (const auto& [begin, end] : ranges)
    out.push_back(runtime.string(self.text().slice(begin, end), self.string().is_markup));
  return as_tuple ? runtime.tuple(std::move(out)) : runtime.list(std::move(out));
}

/// Words between white space; at most `limit` splits, from the left.
std::vector<Range> split_words(std::string_view text, std::int64_t limit) {
  std::vector<Range> out;
  std::size_t pos = 0;
  const auto skip_space = [&] {
    while (pos < text.size()) {
      std::size_t next = pos;
      if (!python::is_space(utf8::next_bounded(text, next))) break;
      pos = next;
    }
  };
  for (skip_space(); pos < text.size(); skip_space()) {
    if (static_cast<std::int64_t>(out.size()) >= limit) {
      out.emplace_back(pos, text.size());
      break;
    }
    const std::size_t begin = pos;
    while (pos < text.size()) {
      std::size_t next = pos;
      if (python::is_space(utf8::next_bounded(text, next))) break;
      pos = next;
    }
    out.emplace_back(begin, pos);
  }
  return out;
}

/// As split_words, from the right. The piece that stays whole loses its white space on the right, as in
/// Python.
std::vector<Range> rsplit_words(std::string_view text, std::int64_t limit) {
  std::vector<Range> out;
  std::size_t pos = text.size();
  const auto skip = [&](bool space) {
    while (pos > 0) {
      const std::size_t start = utf8::previous(text, pos);
      std::size_t at = start;
      if (python::is_space(utf8::next_bounded(text, at)) != space) break;
      pos = start;
    }
  };
  for (skip(true); pos > 0; skip(true)) {
    const std::size_t end = pos;
    if (static_cast<std::int64_t>(out.size()) >= limit) {
      out.emplace_back(0, end);
      break;
    }
    skip(false);
    out.emplace_back(pos, end);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Range> split_by(std::string_view text, std::string_view separator, std::int64_t limit) {
  const Finder finder(separator);
  std::vector<Range> out;
  std::size_t begin = 0;
  while (static_cast<std::int64_t>(out.size()) < limit) {
    const std::size_t at = finder.find(text, begin, text.size());
    if (at == kNoMatch) break;
    out.emplace_back(begin, at);
    begin = at + separator.size();
  }
  out.emplace_back(begin, text.size());
  return out;
}

/// From the right: the reversed text is split from the left.
std::vector<Range> rsplit_by(std::string_view text, std::string_view separator, std::int64_t limit) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_separator(separator.rbegin(), separator.rend());
  std::vector<Range> out = split_by(reversed_text, reversed_separator, limit);
  for (Range& range : out) range = {text.size() - range.second, text.size() - range.first};
  std::reverse(out.begin(), out.end());
  return out;
}

template <bool kRight>
Value split(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  std::int64_t limit = bound.integer(1, -1);
  if (limit < 0) limit = std::numeric_limits<std::int64_t>::max();
  runtime.budget().charge_characters(self.view().size());
  if (!bound.has_value(0))
    return pieces(runtime, self, kRight ? rsplit_words(self.view(), limit) : split_words(self.view(), limit));
  const std::string_view separator = bound.text(0).view();
  if (separator.empty()) fail(ErrorCode::kInvalidArgument, "empty separator");
  return pieces(runtime, self,
                kRight ? rsplit_by(self.view(), separator, limit) : split_by(self.view(), separator, limit));
}

Value splitlines(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  return pieces(runtime, self, split_lines(runtime, self.view(), bound.integer(0, 0) != 0));
}

template <bool kRight>
Value partition(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("partition", arguments, {""}, 1);
  const std::string_view separator = bound.text(0).view();
  if (separator.empty()) fail(ErrorCode::kInvalidArgument, "empty separator");
  const std::size_t size = self.view().size();
  const std::size_t at =
      kRight ? find_last_text(runtime, self.view(), separator) : find_text(runtime, self.view(), separator);
  std::vector<Range> parts;
  if (at != kNoMatch) {
    parts = {{0, at}, {at, at + separator.size()}, {at + separator.size(), size}};
  } else if (kRight) {
    parts = {{0, 0}, {0, 0}, {0, size}};
  } else {
    parts = {{0, size}, {size, size}, {size, size}};
  }
  return pieces(runtime, self, parts, /*as_tuple=*/true);
}

/// True when every character passes; an empty text gives `if_empty`.
template <bool (*Check)(char32_t), bool kIfEmpty>
Value all_characters(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  const std::string_view text = self.view();
  runtime.budget().charge_characters(text.size());
  if (text.empty()) return Value::boolean(kIfEmpty);
  for (std::size_t pos = 0; pos < text.size();)
    if (!Check(utf8::next_bounded(text, pos))) return Value::boolean(false);
  return Value::boolean(true);
}

bool is_ascii(char32_t c) { return c < 0x80; }

template <bool kUpper>
Value has_case(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  return Value::boolean(find_test(kUpper ? "upper" : "lower")(runtime, self, arguments));
}

Value istitle(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("istitle", arguments, {});
  runtime.budget().charge_characters(self.view().size());
  bool inside_word = false, cased = false;
  for (std::size_t pos = 0; pos < self.view().size();) {
    const char32_t c = utf8::next_bounded(self.view(), pos);
    const bool upper = python::is_upper(c) || python::is_title(c);
    if (upper ? inside_word : python::is_lower(c) && !inside_word) return Value::boolean(false);
    inside_word = upper || python::is_lower(c);
    cased |= inside_word;
  }
  return Value::boolean(cased);
}

Value isidentifier(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("isidentifier", arguments, {});
  runtime.budget().charge_characters(self.view().size());
  for (std::size_t pos = 0; pos < self.view().size();) {
    const bool is_first = pos == 0;
    const char32_t c = utf8::next_bounded(self.view(), pos);
    if (!(is_first ? python::is_identifier_start(c) : python::is_identifier_part(c)))
      return Value::boolean(false);
  }
  return Value::boolean(!self.view().empty());
}

template <int kWhich>
Value refused(Runtime&, const Value&, Arguments&) {
  static constexpr std::string_view kNames[] = {"encode", "translate", "maketrans"};
  fail(ErrorCode::kInvalidArgument, "the str method '{}' is not supported", kNames[kWhich]);
}

struct Entry {
  std::string_view name;
  FunctionObject::Body body;
};
constexpr Entry kSplitMethods[] = {
    {"split", split<false>},         {"rsplit", split<true>},         {"splitlines", splitlines},
    {"partition", partition<false>}, {"rpartition", partition<true>},
};
constexpr Entry kPropertyMethods[] = {
    {"isalnum", all_characters<python::is_alnum, false>},
    {"isalpha", all_characters<python::is_alpha, false>},
    {"isascii", all_characters<is_ascii, true>},
    {"isdecimal", all_characters<python::is_decimal, false>},
    {"isdigit", all_characters<python::is_digit, false>},
    {"isnumeric", all_characters<python::is_numeric, false>},
    {"isprintable", all_characters<python::is_printable, true>},
    {"isspace", all_characters<python::is_space, false>},
    {"islower", has_case<false>},
    {"isupper", has_case<true>},
    {"istitle", istitle},
    {"isidentifier", isidentifier},
    {"encode", refused<0>},
    {"translate", refused<1>},
    {"maketrans", refused<2>},
};

}  // namespace

FunctionObject::Body find_split_method(std::string_view name) {
  for (const Entry& entry : kSplitMethods)
    if (entry.name == name) return entry.body;
  return nullptr;
}

FunctionObject::Body find_text_property_method(std::string_view name) {
  for (const Entry& entry : kPropertyMethods)
    if (entry.name == name) return entry.body;
  return nullptr;
}

}  // namespace triptych::jinja
