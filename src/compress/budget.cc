#include "compress/budget.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "report/text_table.h"

namespace triptych::compress {

std::vector<std::size_t> choose_within(const std::vector<std::vector<Choice>>& linears, double max_bytes) {
  constexpr std::size_t kSteps = 4096;
  double least = 0;
  std::vector<double> smallest;
  for (const auto& choices : linears) {
    TRIPTYCH_CHECK(!choices.empty(), "a linear without a choice");
    double bytes = std::numeric_limits<double>::infinity();
    for (const Choice& choice : choices) bytes = std::min(bytes, choice.bytes);
    smallest.push_back(bytes);
    least += bytes;
  }
  if (least > max_bytes)
    fail(ErrorCode::kInvalidArgument, "the linears take at least {}, the budget is {}", format_bytes(least),
         format_bytes(max_bytes));
  // Steps are of what lies above the smallest choices.
  const double step = (max_bytes - least) / kSteps;
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<double> best(kSteps + 1, 0.0), next(kSteps + 1);
  std::vector<std::vector<std::uint16_t>> chosen(linears.size(), std::vector<std::uint16_t>(kSteps + 1));
  const auto steps_of = [&](std::size_t l, const Choice& choice) -> std::size_t {
    const double more = choice.bytes - smallest[l];
    if (more <= 0) return 0;
    if (!(step > 0)) return kSteps + 1;
    const double steps = std::ceil(more / step);
    return steps > kSteps ? kSteps + 1 : static_cast<std::size_t>(steps);
  };
  for (std::size_t l = 0; l < linears.size(); ++l) {
    std::fill(next.begin(), next.end(), kNone);
    for (std::size_t c = 0; c < linears[l].size(); ++c) {
      const std::size_t steps = steps_of(l, linears[l][c]);
      for (std::size_t s = steps; s <= kSteps; ++s) {
        const double loss = best[s - steps] + linears[l][c].loss;
        if (!(loss < next[s])) continue;
        next[s] = loss;
        chosen[l][s] = static_cast<std::uint16_t>(c);
      }
    }
    std::swap(best, next);
  }
  std::vector<std::size_t> out(linears.size());
  std::size_t left = kSteps;
  for (std::size_t l = linears.size(); l-- > 0;) {
    out[l] = chosen[l][left];
    left -= steps_of(l, linears[l][out[l]]);
  }
  return out;
}

}  // namespace triptych::compress
