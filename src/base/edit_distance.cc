#include "base/edit_distance.h"

#include <algorithm>
#include <vector>

namespace triptych {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1), above(b.size() + 1), two_above(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_above.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string_view nearest_name(std::string_view word, std::span<const std::string> names) {
  constexpr std::size_t kLongest_bytes = 200;  // of what comes from outside
  constexpr std::size_t kTooFew = 3;           // bytes that say nothing as a beginning
  if (word.empty() || word.size() > kLongest_bytes) return {};
  std::string_view best;
  std::size_t best_distance = static_cast<std::size_t>(-1);
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(word, name);
    if (distance >= best_distance) continue;
    const bool is_start =
        word.size() > kTooFew && (std::string_view(name).starts_with(word) || word.starts_with(name));
    if (!is_start && distance > std::max(word.size(), name.size()) / 3) continue;
    best = name;
    best_distance = distance;
  }
  return best;
}

}  // namespace triptych
