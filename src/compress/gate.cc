#include "compress/gate.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace triptych::compress {
namespace {

constexpr std::pair<std::string_view, GateCondition::Metric> kMetrics[] = {
    {"accuracy", GateCondition::Metric::kAccuracy},
    {"kl", GateCondition::Metric::kDivergence},
    {"same_top", GateCondition::Metric::kSameTop},
    {"picture", GateCondition::Metric::kPicture}};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

[[noreturn]] void refuse(std::string_view part) {
  fail(ErrorCode::kInvalidArgument,
       "--gate: expected conditions such as accuracy>=-0.3,kl<=0.005 (accuracy, kl, same_top, picture), got "
       "\"{}\"",
       part.substr(0, 100));
}

GateCondition parse_condition(std::string_view part) {
  const std::size_t at = part.find_first_of("<>");
  if (at == std::string_view::npos || at + 1 >= part.size() || part[at + 1] != '=') refuse(part);
  GateCondition out{.at_least = part[at] == '>', .text = std::string(part)};
  const std::string_view name = trimmed(part.substr(0, at));
  bool known = false;
  for (const auto& [word, metric] : kMetrics) {
    if (word != name) continue;
    known = true;
    out.metric = metric;
  }
  if (!known) refuse(part);
  const std::string_view number = trimmed(part.substr(at + 2));
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.bound);
  if (error != std::errc() || end != number.data() + number.size() || !std::isfinite(out.bound)) refuse(part);
  return out;
}

double value_of(GateCondition::Metric metric, const QualityLoss& loss) {
  switch (metric) {
    case GateCondition::Metric::kAccuracy:
      return loss.accuracy_points();
    case GateCondition::Metric::kDivergence:
      return loss.after.mean_kl_divergence();
    case GateCondition::Metric::kSameTop:
      return 100 * loss.after.same_top();
    case GateCondition::Metric::kPicture:
      return loss.picture_points();
  }
  return 0;
}

}  // namespace

std::vector<GateCondition> parse_gate(std::string_view text) {
  std::vector<GateCondition> out;
  while (true) {
    const std::size_t comma = text.find(',');
    out.push_back(parse_condition(trimmed(text.substr(0, comma))));
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

std::vector<GateResult> check_gate(const std::vector<GateCondition>& gate, const QualityLoss& loss) {
  // Points come from counts: what is a bound in decimal must not fail by a last bit.
  constexpr double kSlack = 1e-9;
  std::vector<GateResult> out;
  for (const GateCondition& condition : gate) {
    const double value = value_of(condition.metric, loss);
    const bool passed =
        condition.at_least ? value >= condition.bound - kSlack : value <= condition.bound + kSlack;
    out.push_back({condition.text, value, passed});
  }
  return out;
}

}  // namespace triptych::compress
