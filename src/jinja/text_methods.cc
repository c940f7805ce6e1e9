// Methods of str that make text or look into it. Source: the Python library reference, str.
#include <algorithm>

#include "jinja/builtins.h"
#include "jinja/text_ops.h"
#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

Value like(Runtime& runtime, const Value& self, MarkedString text) {
  return runtime.string(std::move(text), self.string().is_markup);
}

template <MarkedString (*Map)(Runtime&, const MarkedString&)>
Value mapped(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  return like(runtime, self, Map(runtime, self.text()));
}

template <bool kLeft, bool kRight>
Value strip(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("strip", arguments, {""});
  std::optional<std::string_view> characters;
  if (bound.has_value(0)) characters = bound.text(0).view();
  const auto [begin, end] = strip_range(runtime, self.view(), characters, kLeft, kRight);
  return like(runtime, self, self.text().slice(begin, end));
}

Value replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("replace", arguments, {"", "", ""}, 2);
  return like(runtime, self,
              replace_text(runtime, self.text(), bound.text(0).view(), bound.text(1), bound.integer(2, -1)));
}

Value join(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("join", arguments, {""}, 1);
  const std::vector<Value> items = runtime.to_vector(bound.at(0));
  for (std::size_t i = 0; i < items.size(); ++i)
    if (!items[i].is_string())
      fail(ErrorCode::kInvalidArgument, "sequence item {}: expected str instance, {} found", i,
           type_name(items[i]));
  return like(runtime, self, join_text(runtime, self.text(), items));
}

Value format(Runtime& runtime, const Value& self, Arguments& arguments) {
  return like(runtime, self, format_braces(runtime, self.text(), arguments));
}

Value format_map(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("format_map", arguments, {""}, 1);
  if (!bound.at(0).is_dict()) fail_operand("format_map", bound.at(0));
  Arguments fields;
  for (const auto& [key, value] : bound.at(0).dict().entries())
    if (key.is_string()) fields.named.emplace_back(std::string(key.view()), value);
  return like(runtime, self, format_braces(runtime, self.text(), fields));
}

/// The part [start, end) that find, count and startswith look at. `exists` is false when start lies beyond
/// the end.
struct Window {
  std::size_t begin, end;
  bool exists;
};

Window window(const Value& self, const Bound& bound) {
  const StringObject& text = self.string();
  const auto length = static_cast<std::int64_t>(text.length);
  const auto place = [&](std::size_t i, std::int64_t fallback) {
    if (!bound.has_value(i)) return fallback;
    std::int64_t at = bound.integer(i, 0);
    if (at < 0) at = std::max<std::int64_t>(0, at + length);
    return at;
  };
  const std::int64_t start = place(1, 0);
  const std::int64_t end = std::min(place(2, length), length);
  if (start > length || start > end) return {0, 0, false};
  return {text.offset(static_cast<std::size_t>(start)), text.offset(static_cast<std::size_t>(end)), true};
}

std::int64_t find_in(Runtime& runtime, const Value& self, const Bound& bound, bool last) {
  const Window w = window(self, bound);
  if (!w.exists) return -1;
  const std::string_view part = self.view().substr(w.begin, w.end - w.begin);
  const std::string_view needle = bound.text(0).view();
  const std::size_t at = last ? find_last_text(runtime, part, needle) : find_text(runtime, part, needle);
  if (at == kNoMatch) return -1;
  return static_cast<std::int64_t>(utf8::count(self.view().substr(0, w.begin + at)));
}

template <bool kLast, bool kMustExist>
Value find(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("find", arguments, {"", "", ""}, 1);
  const std::int64_t at = find_in(runtime, self, bound, kLast);
  if (kMustExist && at < 0) fail(ErrorCode::kInvalidArgument, "substring not found");
  return Value::integer(at);
}

Value count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"", "", ""}, 1);
  const Window w = window(self, bound);
  if (!w.exists) return Value::integer(0);
  runtime.budget().charge_text(self.view().size());
  const std::string_view needle = bound.text(0).view();
  const std::string_view part = self.view().substr(w.begin, w.end - w.begin);
  if (needle.empty()) return Value::integer(static_cast<std::int64_t>(utf8::count(part)) + 1);
  const Finder finder(needle);
  std::int64_t n = 0;
  for (std::size_t at = finder.find(part, 0, part.size()); at != kNoMatch;
       at = finder.find(part, at + needle.size(), part.size()))
    ++n;
  return Value::integer(n);
}

/// startswith and endswith: one text or a tuple of them.
template <bool kStart>
Value affix(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(kStart ? "startswith" : "endswith", arguments, {"", "", ""}, 1);
  const Window w = window(self, bound);
  const std::string_view part = self.view().substr(w.begin, w.end - w.begin);
  const auto matches = [&](const Value& candidate) {
    if (!candidate.is_string()) fail_operand(kStart ? "startswith" : "endswith", candidate);
    runtime.budget().charge_text(candidate.view().size());
    return w.exists && (kStart ? part.starts_with(candidate.view()) : part.ends_with(candidate.view()));
  };
  if (!bound.at(0).is(Type::kTuple)) return Value::boolean(matches(bound.at(0)));
  for (const Value& candidate : bound.at(0).items())
    if (matches(candidate)) return Value::boolean(true);
  return Value::boolean(false);
}

template <bool kPrefix>
Value remove_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound(kPrefix ? "removeprefix" : "removesuffix", arguments, {""}, 1);
  const std::string_view affix_text = bound.text(0).view();
  std::size_t begin = 0, end = self.view().size();
  if (kPrefix && self.view().starts_with(affix_text)) begin = affix_text.size();
  if (!kPrefix && self.view().ends_with(affix_text)) end -= affix_text.size();
  return like(runtime, self, self.text().slice(begin, end));
}

enum class Side { kLeft, kRight, kBoth };

template <Side kSide>
Value pad(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("center", arguments, {"", ""}, 1);
  const std::int64_t width = std::clamp<std::int64_t>(bound.integer(0, 0), 0, std::int64_t{1} << 40);
  const MarkedString fill = bound.has(1) ? bound.text(1) : MarkedString(" ");
  if (utf8::count(fill.view()) != 1)
    fail(ErrorCode::kInvalidArgument, "The fill character must be exactly one character long");
  const std::int64_t missing =
      std::max<std::int64_t>(0, width - static_cast<std::int64_t>(self.string().length));
  const std::int64_t left = kSide == Side::kLeft    ? 0
                            : kSide == Side::kRight ? missing
                                                    : missing / 2 + (missing & width & 1);
  MarkedString out(repeated(runtime, fill.view(), left));
  out.append(self.text());
  out.append(repeated(runtime, fill.view(), missing - left));
  return like(runtime, self, std::move(out));
}

Value zfill(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("zfill", arguments, {""}, 1);
  const std::int64_t width = std::clamp<std::int64_t>(bound.integer(0, 0), 0, std::int64_t{1} << 40);
  const std::string zeros = repeated(runtime, "0", width - static_cast<std::int64_t>(self.string().length));
  const bool is_signed = self.view().starts_with('+') || self.view().starts_with('-');
  MarkedString out = self.text().slice(0, is_signed ? 1 : 0);
  out.append(zeros);
  out.append(self.text(), is_signed ? 1 : 0, self.view().size());
  return like(runtime, self, std::move(out));
}

Value expandtabs(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("expandtabs", arguments, {"tabsize"});
  const std::int64_t size = std::clamp<std::int64_t>(bound.integer(0, 8), 0, std::int64_t{1} << 40);
  runtime.budget().charge_characters(self.view().size());
  MarkedMapper out(self.text());
  std::size_t total = 0;
  std::int64_t column = 0;
  for (std::size_t pos = 0; pos < self.view().size();) {
    const std::size_t begin = pos;
    const char32_t c = utf8::next_bounded(self.view(), pos);
    if (c == '\t') {
      const std::int64_t spaces = size == 0 ? 0 : size - column % size;
      total += static_cast<std::size_t>(spaces);
      runtime.budget().check_text_size(total);
      out.append(repeated(runtime, " ", spaces), begin);
      column += spaces;
    } else {
      out.append(self.view().substr(begin, pos - begin), begin);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    total += pos - begin;
  }
  return like(runtime, self, out.take());
}

struct Entry {
  std::string_view name;
  FunctionObject::Body body;
};
constexpr Entry kMethods[] = {
    {"upper", mapped<to_upper>},
    {"lower", mapped<to_lower>},
    {"casefold", mapped<to_folded>},
    {"swapcase", mapped<swap_case>},
    {"capitalize", mapped<capitalize>},
    {"title", mapped<title_case>},
    {"strip", strip<true, true>},
    {"lstrip", strip<true, false>},
    {"rstrip", strip<false, true>},
    {"replace", replace},
    {"join", join},
    {"format", format},
    {"format_map", format_map},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"startswith", affix<true>},
    {"endswith", affix<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"center", pad<Side::kBoth>},
    {"ljust", pad<Side::kLeft>},
    {"rjust", pad<Side::kRight>},
    {"zfill", zfill},
    {"expandtabs", expandtabs},
};

}  // namespace

FunctionObject::Body find_text_method(std::string_view name) {
  for (const Entry& entry : kMethods)
    if (entry.name == name) return entry.body;
  return nullptr;
}

}  // namespace triptych::jinja
