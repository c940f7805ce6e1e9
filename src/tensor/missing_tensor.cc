#include "tensor/missing_tensor.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/edit_distance.h"

namespace triptych {

std::string what_is_there(const WeightTable& table, std::string_view name) {
  constexpr std::size_t kMostShown = 3;
  constexpr std::size_t kLongest_bytes = 200;
  constexpr std::size_t kMostCompared = 20000;
  if (table.empty()) return "; it holds no tensors";
  std::vector<std::pair<std::size_t, const std::string*>> near;
  for (const WeightEntry& entry : table) {
    if (entry.name.size() > kLongest_bytes || near.size() == kMostCompared) continue;
    near.emplace_back(edit_distance(name.substr(0, kLongest_bytes), entry.name), &entry.name);
  }
  const std::size_t n = std::min(kMostShown, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(n), near.end(),
                    [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string list;
  for (std::size_t i = 0; i < n; ++i) list += (i == 0 ? "" : ", ") + *near[i].second;
  return fmt::format("; of its {} tensors the nearest are {}", table.size(), list);
}

}  // namespace triptych
