// Whether drafting pays, by what was measured: how often drafts of a request were right, and what a step with
// more rows takes. Arithmetic on counts and durations: no model, no clock.
//
// A step of N sequences that decode takes as long as N "plain tokens"; everything below is counted in these.
// A draft of k tokens, each right with probability a as long as those before it are, gives A = a + a^2 + ...
// + a^k more tokens and takes X more time. It is tried when (N + A) / (N + X) is largest at k and above
// kLeastGain, and when what would be lost if nothing were right, X, is in the budget. A budget earns
// kEarnings with each token of an answer and what a right draft saved, so that an answer never takes longer
// by much more than that share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace triptych {

/// Durations of steps in which all sequences decode, by how many there are and how many drafted rows come on
/// top.
class DraftCosts {
 public:
  /// Beyond this many drafted rows costs go on as between the last two known.
  static constexpr int kMaxDrafted = 64;
  /// Until something is measured, each drafted row is taken to cost this share of a plain step of one
  /// sequence.
  static constexpr double kFirstGuess = 0.06;

  void observe(int n_sequences, int n_drafted, double ms);
  /// Of a plain step; nothing before two were seen (the first pays for what later ones find ready).
  std::optional<double> plain_ms(int n_sequences) const;
  /// Duration of a step with drafted rows over that of a plain one: measured, between two that were, or a
  /// guess.
  double ratio(int n_sequences, int n_drafted) const;
  /// Plain steps of so many sequences are overdue: what is known of them is old.
  bool is_stale(int n_sequences) const;

 private:
  static constexpr int kStaleSteps = 64;
  struct Cell {
    double ratio = 0;
    std::int64_t n_seen = 0;
    std::int64_t seen_at = 0;  // in plain steps; one measurement alone is forgotten after a while
  };
  struct Steps {
    double plain_ms = 0;
    std::int64_t n_plain = 0;
    std::int64_t n_since_plain = 0;
    std::vector<Cell> drafted;  // by drafted rows - 1
  };
  const Steps* steps_of(int n_sequences) const;
  static bool is_known(const Steps& steps, int n_drafted);

  std::vector<Steps> steps_;  // by sequences - 1
};

/// How often drafted tokens were right, the latest counting most. Kinds of drafts are told apart: a match of
/// four tokens is worth more than one of two.
class AcceptanceRates {
 public:
  static constexpr int kKinds = 5;

  /// `n_judged`: the tokens up to the first wrong one, itself included.
  void observe(int kind, int n_judged, int n_accepted);
  /// All counts fade by this factor.
  void fade(double factor);
  /// With `weight` tokens more that were right at `prior`.
  double rate(int kind, double prior, double weight) const;

 private:
  struct Counts {
    double judged = 0, accepted = 0;
  };
  std::array<Counts, kKinds> counts_{};
};

/// What may still be lost, in plain tokens.
class LossBudget {
 public:
  LossBudget(double first, double most) : credit_(first), most_(most) {}
  void add(double tokens) { credit_ = credit_ + tokens < most_ ? credit_ + tokens : most_; }
  double credit() const noexcept { return credit_; }

 private:
  double credit_, most_;
};

/// What all requests of an engine share.
struct SharedSpeculation {
  DraftCosts costs;
  AcceptanceRates rates;
  LossBudget budget{0.5, 16};
  double first_rate = 0.5;  // that drafts are taken to be right at before any was judged
};

/// The gate of one request.
class SpeculationGate {
 public:
  static constexpr double kLeastGain = 1.02;
  static constexpr double kEarnings = 0.015;  // plain tokens that may be lost for each token

  struct Step {
    int n_sequences = 1;
    int n_drafted = 0;       // rows that others of the step have drafted already
    double draft_share = 0;  // of a plain step, that drafting one token takes
  };
  /// Tokens to draft, at most `max_tokens`.
  int choose(const SharedSpeculation& shared, const Step& step, int kind, int max_tokens) const;
  /// What came of a draft. `lost_tokens`: the time that it added to the step.
  void observe(SharedSpeculation& shared, int kind, int n_drafted, int n_accepted, double lost_tokens);
  /// A token of the answer came.
  void earn(SharedSpeculation& shared);

 private:
  AcceptanceRates rates_;
  LossBudget budget_{0.25, 4};
};

}  // namespace triptych
