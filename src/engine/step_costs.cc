#include "engine/step_costs.h"

#include <algorithm>

namespace triptych {
namespace {

constexpr double kNew = 0.25;  // share of the newest measurement

void blend(double& mean, double value) noexcept { mean = mean > 0 ? mean + kNew * (value - mean) : value; }

}  // namespace

void StepCosts::note(const StepMeasurement& step) noexcept {
  if (!(step.ms >= 0)) return;
  if (step.n_prefill_rows == 0) {
    if (step.n_decode_rows > 0) blend(decode_ms_, step.ms);
    return;
  }
  const double decode_ms = step.n_decode_rows > 0 ? decode_ms_ : 0;
  blend(prefill_row_ms_, std::max(step.ms - decode_ms, 0.0) / static_cast<double>(step.n_prefill_rows));
}

}  // namespace triptych
