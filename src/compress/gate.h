// Whether a compressed model is good enough: conditions on what was lost.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evaluation/eval.h"

namespace triptych::compress {

/// The same questions, answered by the checkpoint in float32 and by what was made of it.
struct QualityLoss {
  EvalScore before, after;

  /// Points of exact match gained; negative: lost.
  double accuracy_points() const noexcept { return 100 * (after.accuracy() - before.accuracy()); }
  /// Points by which real pictures are answered better than blank ones.
  double picture_points() const noexcept { return 100 * (after.accuracy() - after.control_accuracy()); }
};

struct GateCondition {
  enum class Metric { kAccuracy, kDivergence, kSameTop, kPicture };
  Metric metric = Metric::kAccuracy;
  bool at_least = true;
  double bound = 0;
  std::string text;  // as given
};

struct GateResult {
  std::string condition;
  double value = 0;
  bool passed = false;
};

/// "accuracy>=-0.3,kl<=0.005": points of exact match against the original, mean divergence of answers in
/// nats; same_top (percent of tokens) and picture (points over blank pictures) exist too. Throws
/// Error(kInvalidArgument) naming the part.
std::vector<GateCondition> parse_gate(std::string_view text);

std::vector<GateResult> check_gate(const std::vector<GateCondition>& gate, const QualityLoss& loss);

}  // namespace triptych::compress
