#include "engine/speculation_gate.h"

#include <algorithm>
#include <cmath>

namespace triptych {
namespace {

constexpr double kNewShare = 0.25;  // of a measurement in what is known
constexpr std::int64_t kForgetSteps = 32;
constexpr int kMaxSequences = 256;     // beyond, steps count as of so many
constexpr double kRequestFade = 0.98;  // a token: half is forgotten after 34
constexpr double kSharedFade = 0.995;  // after 138
constexpr double kFirstWeight = 2;

std::size_t place_of(int n_sequences) {
  return static_cast<std::size_t>(std::clamp(n_sequences, 1, kMaxSequences) - 1);
}

// One that took unusually long, or short, says little.
double blended(double known, double measured) {
  return known + kNewShare * (std::clamp(measured, known / 2, known * 1.5) - known);
}

}  // namespace

const DraftCosts::Steps* DraftCosts::steps_of(int n_sequences) const {
  const std::size_t place = place_of(n_sequences);
  return place < steps_.size() ? &steps_[place] : nullptr;
}

void DraftCosts::observe(int n_sequences, int n_drafted, double ms) {
  const std::size_t place = place_of(n_sequences);
  if (place >= steps_.size()) steps_.resize(place + 1);
  Steps& steps = steps_[place];
  if (n_drafted <= 0) {
    steps.n_since_plain = 0;
    steps.plain_ms = steps.n_plain < 2 ? ms : blended(steps.plain_ms, ms);
    ++steps.n_plain;
    return;
  }
  ++steps.n_since_plain;
  if (n_drafted > kMaxDrafted || steps.n_plain < 2 || !(steps.plain_ms > 0)) return;
  if (steps.drafted.size() < static_cast<std::size_t>(n_drafted))
    steps.drafted.resize(static_cast<std::size_t>(n_drafted));
  Cell& cell = steps.drafted[static_cast<std::size_t>(n_drafted) - 1];
  const double ratio = ms / steps.plain_ms;
  cell.ratio = is_known(steps, n_drafted) ? blended(cell.ratio, ratio) : ratio;
  cell.n_seen = is_known(steps, n_drafted) ? cell.n_seen + 1 : 1;
  cell.seen_at = steps.n_plain;
}

std::optional<double> DraftCosts::plain_ms(int n_sequences) const {
  const Steps* steps = steps_of(n_sequences);
  if (steps == nullptr || steps->n_plain < 2) return std::nullopt;
  return steps->plain_ms;
}

bool DraftCosts::is_stale(int n_sequences) const {
  const Steps* steps = steps_of(n_sequences);
  return steps == nullptr || steps->n_plain < 2 || steps->n_since_plain >= kStaleSteps;
}

bool DraftCosts::is_known(const Steps& steps, int n_drafted) {
  if (n_drafted < 1 || static_cast<std::size_t>(n_drafted) > steps.drafted.size()) return false;
  const Cell& cell = steps.drafted[static_cast<std::size_t>(n_drafted) - 1];
  return cell.n_seen > 1 || (cell.n_seen == 1 && steps.n_plain - cell.seen_at < kForgetSteps);
}

double DraftCosts::ratio(int n_sequences, int n_drafted) const {
  if (n_drafted <= 0) return 1;
  const Steps* steps = steps_of(n_sequences);
  const double per_row = kFirstGuess / std::max(n_sequences, 1);
  if (steps == nullptr) return 1 + per_row * n_drafted;
  const auto known = [&](int n) { return steps->drafted[static_cast<std::size_t>(n) - 1].ratio; };
  if (is_known(*steps, n_drafted)) return known(n_drafted);
  int below = n_drafted - 1;
  while (below > 0 && !is_known(*steps, below)) --below;
  const double low = below > 0 ? known(below) : 1;
  const int end = static_cast<int>(steps->drafted.size());
  int above = n_drafted + 1;
  while (above <= end && !is_known(*steps, above)) ++above;
  const double slope = above <= end ? (known(above) - low) / (above - below) : per_row;
  return low + slope * (n_drafted - below);
}

void AcceptanceRates::observe(int kind, int n_judged, int n_accepted) {
  Counts& counts = counts_[static_cast<std::size_t>(std::clamp(kind, 0, kKinds - 1))];
  counts.judged += n_judged;
  counts.accepted += n_accepted;
}

void AcceptanceRates::fade(double factor) {
  for (Counts& counts : counts_) {
    counts.judged *= factor;
    counts.accepted *= factor;
  }
}

double AcceptanceRates::rate(int kind, double prior, double weight) const {
  const Counts& counts = counts_[static_cast<std::size_t>(std::clamp(kind, 0, kKinds - 1))];
  return (counts.accepted + prior * weight) / (counts.judged + weight);
}

int SpeculationGate::choose(const SharedSpeculation& shared, const Step& step, int kind,
                            int max_tokens) const {
  if (shared.costs.is_stale(step.n_sequences)) return 0;
  const double a = rates_.rate(kind, shared.rates.rate(kind, shared.first_rate, kFirstWeight), kFirstWeight);
  const double credit = std::min(budget_.credit(), shared.budget.credit());
  const double n = step.n_sequences;
  const double before = shared.costs.ratio(step.n_sequences, step.n_drafted);
  int best = 0;
  double best_gain = kLeastGain;
  double gained = 0;
  for (int k = 1; k <= max_tokens; ++k) {
    gained += std::pow(a, k);
    const double after = shared.costs.ratio(step.n_sequences, step.n_drafted + k);
    const double lost = n * (std::max(after - before, 0.0) + step.draft_share * k);
    if (lost > credit) break;
    const double gain = (n + gained) / (n + lost);
    if (gain <= best_gain) continue;
    best_gain = gain;
    best = k;
  }
  return best;
}

void SpeculationGate::observe(SharedSpeculation& shared, int kind, int n_drafted, int n_accepted,
                              double lost_tokens) {
  const int n_judged = std::min(n_accepted + 1, n_drafted);
  rates_.observe(kind, n_judged, n_accepted);
  shared.rates.observe(kind, n_judged, n_accepted);
  budget_.add(n_accepted - lost_tokens);
  shared.budget.add(n_accepted - lost_tokens);
}

void SpeculationGate::earn(SharedSpeculation& shared) {
  budget_.add(kEarnings);
  shared.budget.add(kEarnings);
  rates_.fade(kRequestFade);
  shared.rates.fade(kSharedFade);
}

}  // namespace triptych
