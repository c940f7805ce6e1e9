// Operations on marked text that filters and str methods share. All keep marks and charge their work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/runtime.h"

namespace triptych::jinja {

constexpr std::size_t kNoMatch = std::string_view::npos;

/// Searches for one text many times; linear in what it walks over, whatever the text (Knuth, Morris, Pratt).
class Finder {
 public:
  explicit Finder(std::string_view needle);
  /// First match at or behind `from` that ends at or before `end`.
  std::size_t find(std::string_view text, std::size_t from, std::size_t end) const;

 private:
  std::string needle_;
  std::vector<std::uint32_t> fallback_;  // empty for short needles
};

std::size_t find_text(Runtime& runtime, std::string_view text, std::string_view part);
std::size_t find_last_text(Runtime& runtime, std::string_view text, std::string_view part);

MarkedString to_upper(Runtime& runtime, const MarkedString& text);
MarkedString to_lower(Runtime& runtime, const MarkedString& text);
MarkedString to_folded(Runtime& runtime, const MarkedString& text);
MarkedString swap_case(Runtime& runtime, const MarkedString& text);
MarkedString capitalize(Runtime& runtime, const MarkedString& text);
MarkedString title_case(Runtime& runtime, const MarkedString& text);        // str.title()
MarkedString title_case_words(Runtime& runtime, const MarkedString& text);  // the filter title

/// Byte range that is left when characters (absent: white space) are removed at the ends.
std::pair<std::size_t, std::size_t> strip_range(Runtime& runtime, std::string_view text,
                                                std::optional<std::string_view> characters, bool left,
                                                bool right);
/// count < 0: all.
MarkedString replace_text(Runtime& runtime, const MarkedString& text, std::string_view old,
                          const MarkedString& with, std::int64_t count);
/// Byte ranges of the lines.
std::vector<std::pair<std::size_t, std::size_t>> split_lines(Runtime& runtime, std::string_view text,
                                                             bool keep_ends);
/// Joins str(item) of each item.
MarkedString join_text(Runtime& runtime, const MarkedString& separator, const std::vector<Value>& items);

}  // namespace triptych::jinja
