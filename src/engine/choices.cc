#include "engine/choices.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace triptych {

GenerationResult combine_choices(std::vector<GenerationResult> results, int n) {
  TRIPTYCH_CHECK(!results.empty() && n >= 1, "[choices] {} results for {} choices", results.size(), n);
  if (results.size() > static_cast<std::size_t>(n)) {
    std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) {
      if (a.error.has_value() != b.error.has_value()) return b.error.has_value();
      return a.cumulative_logprob.value_or(0) > b.cumulative_logprob.value_or(0);
    });
    results.resize(static_cast<std::size_t>(n));
  }
  if (n == 1) return std::move(results.front());
  GenerationResult out = results.front();
  out.choices = std::move(results);
  return out;
}

}  // namespace triptych
