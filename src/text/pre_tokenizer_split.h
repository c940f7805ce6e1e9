// How pieces are cut: finding delimiters and what becomes of them (tokenizer.json's SplitDelimiterBehavior).
#pragma once

#include <string_view>
#include <vector>

#include "text/pre_tokenizer.h"
#include "text/regex.h"
#include "unicode/utf8.h"

namespace triptych {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// From "Isolated", "Removed" ... Throws Error(kInvalidFile).
SplitBehavior parse_split_behavior(const JsonView& view);

/// A stretch of a piece: what a pattern matched, or what lies between matches.
struct Stretch {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool is_match = false;
};

/// Replaces each piece by what the behaviour makes of its stretches. `stretches(text, out)` must cover the
/// text.
template <typename Stretches>
void split_pieces(PieceList& list, SplitBehavior behavior, Stretches&& stretches);

/// Appends to `out` what the behaviour makes of the stretches of list.pieces[index]; empty pieces are left
/// out.
void merge_stretches(const PieceList& list, std::size_t index, const std::vector<Stretch>& stretches,
                     SplitBehavior behavior, std::vector<Piece>& out);

/// Matches of a regex and the text between them; inverted: the roles are swapped.
void regex_stretches(const Regex& regex, bool invert, std::string_view text, std::vector<Stretch>& out);

/// One match for each character with the property.
template <typename Predicate>
void character_stretches(Predicate&& is_delimiter, std::string_view text, std::vector<Stretch>& out) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t at = i;
    if (!is_delimiter(utf8::next(text, i))) continue;
    if (last < at) out.push_back({static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(at), false});
    out.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(i), true});
    last = i;
  }
  if (last < text.size())
    out.push_back({static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(text.size()), false});
}

template <typename Stretches>
void split_pieces(PieceList& list, SplitBehavior behavior, Stretches&& stretches) {
  std::vector<Piece> out;
  out.reserve(list.pieces.size() == 1 ? list.text.size() / 4 + 1 : list.pieces.size() * 2);
  std::vector<Stretch> found;
  for (std::size_t i = 0; i < list.pieces.size(); ++i) {
    found.clear();
    stretches(list[i], found);
    merge_stretches(list, i, found, behavior, out);
  }
  list.pieces = std::move(out);
}

}  // namespace triptych
