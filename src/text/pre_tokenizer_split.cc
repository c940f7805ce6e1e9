#include "text/pre_tokenizer_split.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace triptych {

SplitBehavior parse_split_behavior(const JsonView& view) {
  const std::string name = view.as_string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  view.fail_expected("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

void merge_stretches(const PieceList& list, std::size_t index, const std::vector<Stretch>& stretches,
                     SplitBehavior behavior, std::vector<Piece>& out) {
  const Piece piece = list.pieces[index];
  std::vector<Stretch> merged;
  const std::vector<Stretch>* result = &stretches;
  bool previous = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
    case SplitBehavior::kRemoved:
      break;
    case SplitBehavior::kContiguous:
      for (const Stretch& s : stretches) {
        if (s.is_match == previous && !merged.empty())
          merged.back().end = s.end;
        else
          merged.push_back(s);
        previous = s.is_match;
      }
      result = &merged;
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Stretch& s : stretches) {
        if (s.is_match && !previous && !merged.empty())
          merged.back().end = s.end;
        else
          merged.push_back(s);
        previous = s.is_match;
      }
      result = &merged;
      break;
    case SplitBehavior::kMergedWithNext:
      for (auto s = stretches.rbegin(); s != stretches.rend(); ++s) {
        if (s->is_match && !previous && !merged.empty())
          merged.back().begin = s->begin;
        else
          merged.push_back(*s);
        previous = s->is_match;
      }
      std::reverse(merged.begin(), merged.end());
      result = &merged;
      break;
  }
  for (const Stretch& s : *result) {
    if (s.begin == s.end || (behavior == SplitBehavior::kRemoved && s.is_match)) continue;
    const std::uint32_t begin = piece.begin + s.begin;
    const bool at_start = list.origin.empty() ? piece.at_start && s.begin == 0 : list.origin[begin] == 0;
    out.push_back({begin, piece.begin + s.end, at_start});
  }
}

void regex_stretches(const Regex& regex, bool invert, std::string_view text, std::vector<Stretch>& out) {
  std::size_t last = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  for (Regex::Matches matches(regex, text); matches.next(begin, end);) {
    if (last != begin)
      out.push_back({static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(begin), invert});
    out.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), !invert});
    last = end;
  }
  if (last != text.size())
    out.push_back({static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(text.size()), invert});
}

}  // namespace triptych
