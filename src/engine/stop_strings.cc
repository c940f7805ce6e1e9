#include "engine/stop_strings.h"

#include <algorithm>

namespace triptych {

std::string StopStrings::push(std::string_view text) {
  if (found_) return {};
  if (stops_.empty()) return std::string(text);
  held_ += text;
  std::size_t best = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    if (at == std::string::npos || at > best || (at == best && stop.size() <= which_.size())) continue;
    best = at;
    which_ = stop;
  }
  if (best != std::string::npos) {
    found_ = true;
    std::string out = held_.substr(0, best);
    held_.clear();
    return out;
  }
  // Keep the longest tail that is the beginning of some stop string.
  std::size_t keep = 0;
  for (const std::string& stop : stops_)
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n)
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) {
        keep = n;
        break;
      }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopStrings::finish() {
  std::string out;
  if (!found_) out.swap(held_);
  return out;
}

}  // namespace triptych
