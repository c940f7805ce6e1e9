#include "jinja/text_ops.h"

#include <algorithm>

#include "unicode/properties.h"
#include "unicode/python.h"
#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

constexpr std::size_t kLongestNeedle = 4u << 20;
constexpr std::size_t kShortNeedle = 8;  // bytes; below it a plain search is fast enough even at its worst

template <typename Append>
MarkedString map_characters(Runtime& runtime, const MarkedString& text, Append&& append) {
  runtime.budget().charge_characters(text.size());
  MarkedMapper out(text);
  std::string buffer;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t begin = pos;
    const char32_t c = utf8::next_bounded(text.view(), pos);
    buffer.clear();
    append(buffer, c, begin);
    out.append(buffer, begin);
  }
  return out.take();
}

/// lower() of one character in its surroundings.
void append_lower_at(std::string& out, char32_t c, std::string_view text, std::size_t at) {
  if (c == 0x3A3 && python::is_final_sigma(text, at)) {
    utf8::append(out, 0x3C2);
  } else {
    unicode::append_lower(out, c);
  }
}

bool is_cased(char32_t c) { return python::is_lower(c) || python::is_upper(c) || python::is_title(c); }

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> out;
  for (std::size_t pos = 0; pos < text.size();) out.push_back(utf8::next_bounded(text, pos));
  return out;
}

}  // namespace

Finder::Finder(std::string_view needle) : needle_(needle) {
  if (needle.size() <= kShortNeedle) return;
  if (needle.size() > kLongestNeedle)
    fail(ErrorCode::kInvalidArgument, "a text to search for exceeds {} bytes", kLongestNeedle);
  fallback_.resize(needle.size());
  std::uint32_t k = 0;
  for (std::size_t i = 1; i < needle.size(); ++i) {
    while (k > 0 && needle[i] != needle[k]) k = fallback_[k - 1];
    if (needle[i] == needle[k]) ++k;
    fallback_[i] = k;
  }
}

std::size_t Finder::find(std::string_view text, std::size_t from, std::size_t end) const {
  text = text.substr(0, end);
  if (fallback_.empty()) return text.find(needle_, from);
  for (std::size_t i = from, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != needle_[k]) k = fallback_[k - 1];
    if (text[i] == needle_[k]) ++k;
    if (k == needle_.size()) return i + 1 - k;
  }
  return kNoMatch;
}

std::size_t find_text(Runtime& runtime, std::string_view text, std::string_view part) {
  runtime.budget().charge_text(text.size() + part.size());
  if (part.size() > text.size()) return kNoMatch;
  return Finder(part).find(text, 0, text.size());
}

std::size_t find_last_text(Runtime& runtime, std::string_view text, std::string_view part) {
  runtime.budget().charge_text(text.size() + part.size());
  if (part.size() > text.size()) return kNoMatch;
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_part(part.rbegin(), part.rend());
  const std::size_t at = Finder(reversed_part).find(reversed_text, 0, reversed_text.size());
  return at == kNoMatch ? kNoMatch : text.size() - at - part.size();
}

MarkedString to_upper(Runtime& runtime, const MarkedString& text) {
  return map_characters(runtime, text,
                        [](std::string& out, char32_t c, std::size_t) { python::append_upper(out, c); });
}

MarkedString to_lower(Runtime& runtime, const MarkedString& text) {
  return map_characters(runtime, text, [&](std::string& out, char32_t c, std::size_t at) {
    append_lower_at(out, c, text.view(), at);
  });
}

MarkedString to_folded(Runtime& runtime, const MarkedString& text) {
  return map_characters(runtime, text,
                        [](std::string& out, char32_t c, std::size_t) { python::append_fold(out, c); });
}

MarkedString swap_case(Runtime& runtime, const MarkedString& text) {
  return map_characters(runtime, text, [&](std::string& out, char32_t c, std::size_t at) {
    if (python::is_upper(c)) {
      append_lower_at(out, c, text.view(), at);
    } else if (python::is_lower(c)) {
      python::append_upper(out, c);
    } else {
      utf8::append(out, c);
    }
  });
}

MarkedString capitalize(Runtime& runtime, const MarkedString& text) {
  return map_characters(runtime, text, [&](std::string& out, char32_t c, std::size_t at) {
    if (at == 0) {
      python::append_title(out, c);
    } else {
      append_lower_at(out, c, text.view(), at);
    }
  });
}

MarkedString title_case(Runtime& runtime, const MarkedString& text) {
  bool inside_word = false;
  return map_characters(runtime, text, [&](std::string& out, char32_t c, std::size_t at) {
    if (inside_word) {
      append_lower_at(out, c, text.view(), at);
    } else {
      python::append_title(out, c);
    }
    inside_word = is_cased(c);
  });
}

MarkedString title_case_words(Runtime& runtime, const MarkedString& text) {
  bool at_word_start = true;
  std::size_t rest = 0;  // of the word, behind its first letter; jinja2 lowers it on its own
  const auto is_separator = [](char32_t c) {
    return c == '-' || python::is_space(c) || c == '(' || c == '{' || c == '[' || c == '<';
  };
  return map_characters(runtime, text, [&](std::string& out, char32_t c, std::size_t at) {
    if (is_separator(c)) {
      utf8::append(out, c);
      at_word_start = true;
    } else if (at_word_start) {
      python::append_upper(out, c);
      at_word_start = false;
      rest = at;
      utf8::next_bounded(text.view(), rest);
    } else {
      append_lower_at(out, c, text.view().substr(rest), at - rest);
    }
  });
}

std::pair<std::size_t, std::size_t> strip_range(Runtime& runtime, std::string_view text,
                                                std::optional<std::string_view> characters, bool left,
                                                bool right) {
  std::vector<char32_t> set;
  if (characters) {
    runtime.budget().charge(1 + characters->size());
    set = code_points(*characters);
    std::sort(set.begin(), set.end());
  }
  const auto strips = [&](char32_t c) {
    return characters ? std::binary_search(set.begin(), set.end(), c) : python::is_space(c);
  };
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (left && begin < end) {
    std::size_t next = begin;
    if (!strips(utf8::next_bounded(text, next))) break;
    begin = next;
  }
  while (right && end > begin) {
    const std::size_t start = utf8::previous(text, end);
    std::size_t pos = start;
    if (!strips(utf8::next_bounded(text, pos))) break;
    end = start;
  }
  runtime.budget().charge_text(text.size() - (end - begin));
  return {begin, end};
}

MarkedString replace_text(Runtime& runtime, const MarkedString& text, std::string_view old,
                          const MarkedString& with, std::int64_t count) {
  runtime.budget().charge_text(text.size() + old.size());
  MarkedString out;
  const auto put = [&] {
    runtime.budget().charge_text(with.size());
    runtime.budget().check_text_size(out.size() + with.size());
    out.append(with);
    if (count > 0) --count;
  };
  std::size_t pos = 0;
  if (old.empty()) {  // between all characters and at both ends
    while (count != 0) {
      put();
      if (pos >= text.size()) break;
      const std::size_t begin = pos;
      utf8::next_bounded(text.view(), pos);
      out.append(text, begin, pos);
    }
  } else {
    const Finder finder(old);
    while (count != 0) {
      const std::size_t at = finder.find(text.view(), pos, text.size());
      if (at == kNoMatch) break;
      out.append(text, pos, at);
      put();
      pos = at + old.size();
    }
  }
  out.append(text, pos, text.size());
  return out;
}

std::vector<std::pair<std::size_t, std::size_t>> split_lines(Runtime& runtime, std::string_view text,
                                                             bool keep_ends) {
  runtime.budget().charge_text(text.size());
  std::vector<std::pair<std::size_t, std::size_t>> out;
  std::size_t begin = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t at = pos;
    const char32_t c = utf8::next_bounded(text, pos);
    if (!python::is_line_break(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    out.emplace_back(begin, keep_ends ? pos : at);
    begin = pos;
  }
  if (begin < text.size()) out.emplace_back(begin, text.size());
  runtime.budget().charge(out.size());
  return out;
}

MarkedString join_text(Runtime& runtime, const MarkedString& separator, const std::vector<Value>& items) {
  MarkedString out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out.append(separator);
    if (items[i].is_string()) {
      out.append(items[i].text());
    } else {
      out.append(runtime.str(items[i]));
    }
    runtime.budget().charge_text(separator.size());
    runtime.budget().check_text_size(out.size());
  }
  return out;
}

}  // namespace triptych::jinja
