// Filters on text. Source: jinja2 3.1 filters.py (behaviour, not code); tojson as transformers overrides it.
#include <algorithm>
#include <array>

#include "jinja/builtins.h"
#include "jinja/text_ops.h"
#include "unicode/python.h"
#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

bool is_markup(const Value& value) { return value.is_string() && value.string().is_markup; }

/// The input as text; markup stays markup.
template <MarkedString (*Map)(Runtime&, const MarkedString&)>
Value mapped(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("filter", arguments, {});
  return runtime.string(Map(runtime, runtime.str(input)), is_markup(input));
}

Value filter_string(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("string", arguments, {});
  return input.is_string() ? input : runtime.string(runtime.str(input));
}

Value filter_safe(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("safe", arguments, {});
  return runtime.string(runtime.str(input), /*is_markup=*/true);
}

Value filter_escape(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("escape", arguments, {});
  if (is_markup(input)) return input;
  return runtime.string(escape_html(runtime, runtime.str(input)), /*is_markup=*/true);
}

Value filter_forceescape(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("forceescape", arguments, {});
  return runtime.string(escape_html(runtime, runtime.str(input)), /*is_markup=*/true);
}

Value filter_trim(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const MarkedString text = runtime.str(input);
  std::optional<std::string_view> characters;
  if (bound.has_value(0)) characters = bound.text(0).view();
  const auto [begin, end] = strip_range(runtime, text.view(), characters, true, true);
  return runtime.string(text.slice(begin, end), is_markup(input));
}

Value filter_replace(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::int64_t count = bound.has_value(2) ? bound.integer(2, -1) : -1;
  const MarkedString old = runtime.str(bound.at(0));
  return runtime.string(
      replace_text(runtime, runtime.str(input), old.view(), runtime.str(bound.at(1)), count));
}

Value filter_center(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  const MarkedString text = runtime.str(input);
  const std::int64_t width = std::clamp<std::int64_t>(bound.integer(0, 80), 0, std::int64_t{1} << 40);
  const std::int64_t missing = width - static_cast<std::int64_t>(utf8::count(text.view()));
  if (missing <= 0) return runtime.string(text, is_markup(input));
  const std::int64_t left = missing / 2 + (missing & width & 1);  // CPython's rounding
  MarkedString out(repeated(runtime, " ", left));
  out.append(text);
  out.append(repeated(runtime, " ", missing - left));
  return runtime.string(std::move(out), is_markup(input));
}

Value filter_indent(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (!input.is_string()) fail_operand("indent", input);
  const bool first = bound.truth(runtime, 1, false);
  const bool blank = bound.truth(runtime, 2, false);
  MarkedString indention(bound.has(0) && bound.at(0).is_string()
                             ? bound.at(0).text()
                             : MarkedString(repeated(runtime, " ", bound.integer(0, 4))));
  MarkedString text = input.text();
  text.append("\n");
  const auto lines = split_lines(runtime, text.view(), /*keep_ends=*/false);
  MarkedString out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto [begin, end] = lines[i];
    if (i != 0) out.append("\n");
    if (i == 0 ? first : blank || begin != end) {
      runtime.budget().charge_text(indention.size());
      out.append(indention);
    }
    runtime.budget().check_text_size(out.size());
    out.append(text, begin, end);
  }
  return runtime.string(std::move(out), is_markup(input));
}

Value filter_truncate(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::int64_t limit = bound.integer(0, 255);
  const MarkedString end = bound.has(2) ? bound.text(2) : MarkedString("...");
  const std::int64_t leeway = bound.has_value(3) ? bound.integer(3, 5) : 5;
  const auto end_length = static_cast<std::int64_t>(utf8::count(end.view()));
  if (limit < end_length)
    fail(ErrorCode::kInvalidArgument, "expected length >= {}, got {}", end_length, limit);
  if (leeway < 0) fail(ErrorCode::kInvalidArgument, "expected leeway >= 0, got {}", leeway);
  const auto length = runtime.length(input);
  if (!length) fail_operand("truncate", input);
  if (*length - leeway <= limit) return input;
  if (!input.is_string()) fail_operand("truncate", input);
  MarkedString out = input.text();
  out.truncate(input.string().offset(static_cast<std::size_t>(limit - end_length)));
  if (!bound.truth(runtime, 1, false)) {
    if (const auto space = out.view().rfind(' '); space != std::string_view::npos) out.truncate(space);
  }
  out.append(end);
  return runtime.string(std::move(out));
}

Value filter_wordcount(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("wordcount", arguments, {});
  const MarkedString text = runtime.str(input);
  runtime.budget().charge_characters(text.size());
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const char32_t c = utf8::next_bounded(text.view(), pos);
    const bool is_word = c == '_' || python::is_alnum(c);
    if (is_word && !inside) ++words;
    inside = is_word;
  }
  return Value::integer(words);
}

/// striptags of markupsafe: comments and tags go, white space collapses, entities are decoded (the basic
/// ones).
Value filter_striptags(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("striptags", arguments, {});
  const MarkedString text = runtime.str(input);
  runtime.budget().charge_text(text.size());
  MarkedString bare;
  const auto remove = [&](const MarkedString& from, std::string_view open, std::string_view close) {
    MarkedString out;
    std::size_t pos = 0;
    while (pos < from.size()) {
      const std::size_t begin = from.view().find(open, pos);
      if (begin == std::string_view::npos) break;
      const std::size_t end = from.view().find(close, begin);
      if (end == std::string_view::npos) break;
      out.append(from, pos, begin);
      pos = end + close.size();
    }
    out.append(from, pos, from.size());
    return out;
  };
  bare = remove(remove(text, "<!--", "-->"), "<", ">");
  MarkedString collapsed;
  bool pending = false;
  for (std::size_t pos = 0; pos < bare.size();) {
    const std::size_t begin = pos;
    if (python::is_space(utf8::next_bounded(bare.view(), pos))) {
      pending = true;
      continue;
    }
    if (pending && !collapsed.empty()) collapsed.append(" ");
    pending = false;
    collapsed.append(bare, begin, pos);
  }
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"},  {"&gt;", ">"},        {"&quot;", "\""}, {"&#34;", "\""},
      {"&#39;", "'"}, {"&nbsp;", "\u00a0"}, {"&amp;", "&"}};
  MarkedMapper out(collapsed);
  for (std::size_t pos = 0; pos < collapsed.size();) {
    const auto rest = collapsed.view().substr(pos);
    const auto entity = std::find_if(std::begin(kEntities), std::end(kEntities),
                                     [&](const auto& e) { return rest.starts_with(e.first); });
    if (entity != std::end(kEntities)) {
      out.append(entity->second, pos);
      pos += entity->first.size();
    } else {
      out.append(rest.substr(0, 1), pos++);
    }
  }
  return runtime.string(out.take());
}

MarkedString url_quote(Runtime& runtime, const MarkedString& text, bool for_query) {
  runtime.budget().charge_characters(text.size());
  MarkedMapper out(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text.view()[i];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    if (plain) {
      out.append(text.view().substr(i, 1), i);
    } else if (c == ' ' && for_query) {
      out.append("+", i);
    } else {
      out.append(fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c))), i);
    }
  }
  return out.take();
}

Value filter_urlencode(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("urlencode", arguments, {});
  if (input.is_string() || !runtime.is_iterable(input))
    return runtime.string(url_quote(runtime, runtime.str(input), false));
  std::vector<std::pair<Value, Value>> pairs;
  if (input.is_dict()) {
    pairs = input.dict().entries();
  } else {
    for (const Value& item : runtime.to_vector(input)) {
      const std::vector<Value> pair = runtime.to_vector(item);
      if (pair.size() != 2) fail(ErrorCode::kInvalidArgument, "urlencode needs pairs");
      pairs.emplace_back(pair[0], pair[1]);
    }
  }
  MarkedString out;
  for (const auto& [key, value] : pairs) {
    if (!out.empty()) out.append("&");
    out.append(url_quote(runtime, runtime.str(key), true));
    out.append("=");
    out.append(url_quote(runtime, runtime.str(value), true));
    runtime.budget().check_text_size(out.size());
  }
  return runtime.string(std::move(out));
}

Value filter_format(Runtime& runtime, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    fail(ErrorCode::kInvalidArgument, "can't handle positional and keyword arguments at the same time");
  if (arguments.named.empty())
    return runtime.string(format_percent(runtime, runtime.str(input), runtime.tuple(arguments.positional)),
                          is_markup(input));
  auto dict = std::make_shared<DictObject>();
  for (const auto& [name, value] : arguments.named) runtime.dict_set(*dict, runtime.string(name), value);
  return runtime.string(format_percent(runtime, runtime.str(input), runtime.dict(std::move(dict))),
                        is_markup(input));
}

Value filter_tojson(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.truth(runtime, 0, false);
  style.sort_keys = bound.truth(runtime, 3, false);
  if (bound.has_value(1)) {
    const Value& indent = bound.at(1);
    style.indent =
        indent.is_string() ? std::string(indent.view()) : repeated(runtime, " ", as_index(indent, "indent"));
    style.item_separator = ",";
  }
  if (bound.has_value(2)) {
    const std::vector<Value> separators = runtime.to_vector(bound.at(2));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      fail(ErrorCode::kInvalidArgument, "tojson: separators must be two strings");
    style.item_separator = std::string(separators[0].view());
    style.key_separator = std::string(separators[1].view());
  }
  return runtime.string(runtime.json(input, style));
}

Value filter_join(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  std::vector<Value> items = runtime.to_vector(input);
  if (bound.has_value(1)) {
    const std::vector<Value> path = attribute_path(runtime, bound.at(1));
    for (Value& item : items) item = follow_path(runtime, item, path);
  }
  const MarkedString separator = bound.has(0) ? runtime.str(bound.at(0)) : MarkedString();
  return runtime.string(join_text(runtime, separator, items));
}

struct Entry {
  std::string_view name;
  FilterBody body;
};
constexpr Entry kFilters[] = {
    {"capitalize", mapped<capitalize>},
    {"center", filter_center},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"join", filter_join},
    {"lower", mapped<to_lower>},
    {"replace", filter_replace},
    {"safe", filter_safe},
    {"string", filter_string},
    {"striptags", filter_striptags},
    {"title", mapped<title_case_words>},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", mapped<to_upper>},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
};

}  // namespace

FilterBody find_text_filter(std::string_view name) {
  for (const Entry& entry : kFilters)
    if (entry.name == name) return entry.body;
  return nullptr;
}

}  // namespace triptych::jinja
