// Speculative decoding: tokens of an answer are drafted cheaply and judged together, in one step of several
// rows of the sequence (Leviathan et al. 2023; Chen et al. 2023).
//
// Drafts are single tokens without a distribution of their own (a lookup, or the likeliest token of a draft),
// so that rejection sampling becomes: draw the token of each row as ever, and go on to the next row while the
// draw is what was drafted. A drafted x is then right with probability p(x), and otherwise the draw has the
// distribution p without x, as rejection sampling wants it; the sampler, whose draws are those of plain
// decoding, moves only by tokens of the answer. So penalties, constraints, seeds and log-probabilities need
// nothing of their own.
//
// Drafted rows write keys and values behind those of the accepted tokens; what was wrong is overwritten by
// the next step. A self-draft runs the model without some layers on the same pages: its keys and values stand
// in the slots that the step which judges it writes anew, in all layers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ngram_index.h"
#include "engine/speculation_gate.h"

namespace triptych {

struct Sequence;
struct SequenceRows;
class LoadedModel;
class ModelRunner;

enum class SpeculationMethod {
  kNone,
  kNgram,      // what followed the last tokens where they stood before (NgramIndex)
  kSelfDraft,  // the model without some of its layers (SelfDraft of engine/self_draft.h)
};
/// "none", "ngram", "self-draft".
std::string_view to_string(SpeculationMethod method) noexcept;
/// Throws Error(kInvalidArgument) naming the words for another.
SpeculationMethod parse_speculation_method(std::string_view word);

/// Named as in vLLM's --speculative-config.
struct SpeculativeOptions {
  static constexpr int kMaxTokens = 32;
  SpeculationMethod method = SpeculationMethod::kNone;
  int num_speculative_tokens = 8;  // drafted at once, at most; [1, kMaxTokens]
  int prompt_lookup_max = 4;       // kNgram: last tokens that are looked for, [1, 32]
  int prompt_lookup_min = 2;       // at least so many, [1, prompt_lookup_max]
  /// Drafts are left out where they do not pay (SpeculationGate); false: all are judged, as many tokens as
  /// allowed.
  bool gate = true;
  /// kSelfDraft: layers that drafts leave out; empty: the model's own (LoadedModel::self_draft).
  std::vector<std::int32_t> skip_layers = {};

  /// Throws Error(kInvalidArgument) naming field and range.
  void validate(int n_layers) const;
};

struct SpeculationCounts {
  std::int64_t n_drafts = 0;    // steps of a sequence in which something was drafted
  std::int64_t n_drafted = 0;   // tokens
  std::int64_t n_accepted = 0;  // of them
};

/// What one sequence has drafted, and how well that went.
class SequenceDraft {
 public:
  /// Drafted for the step to come.
  std::span<const std::int32_t> tokens() const { return std::span(rows_).subspan(rows_.empty() ? 0 : 1); }
  int n_tokens() const noexcept { return rows_.empty() ? 0 : static_cast<int>(rows_.size()) - 1; }
  void clear() noexcept {
    rows_.clear();
    positions_.clear();
  }

 private:
  friend class Speculator;
  std::optional<NgramIndex> index_;  // of prompt and answer
  SpeculationGate gate_;
  int kind_ = 0;                         // of what is drafted, for the gate
  int n_wanted_ = 0;                     // tokens that a self-draft is to have
  std::vector<std::int32_t> rows_;       // the last token of the answer and those drafted behind it
  std::vector<std::int32_t> positions_;  // [n rows * n_axes]
};

class Speculator {
 public:
  /// Borrows both. Throws Error(kInvalidArgument) for options out of range, kUnsupported for a self-draft of
  /// a model that has none.
  Speculator(const SpeculativeOptions& options, const LoadedModel& model, ModelRunner& runner);

  /// A request begins: reads its prompt.
  std::unique_ptr<SequenceDraft> start(const Sequence& s) const;

  /// One of the sequences of a step, all of which decode.
  struct Candidate {
    Sequence* sequence = nullptr;
    int max_tokens = 0;  // that may be drafted: rows of the step and blocks of the cache
  };
  /// Drafts for a step of `n_sequences` in all. Never throws: what cannot be drafted is not.
  void propose(std::span<const Candidate> candidates, int n_sequences);
  /// Last token and drafted ones as a step takes them; `logit_rows` counts them. Borrows from the sequence.
  SequenceRows rows(const Sequence& s, std::span<const std::int32_t> logit_rows) const;

  /// A step of `n_sequences`, all of which decode, took `ms`, drafting left out.
  void observe_step(int n_sequences, int n_drafted, double ms);
  /// What came of a draft in that step, `n_drafted` in all sequences. Before SequenceDraft::clear().
  void observe_draft(Sequence& s, int n_accepted, int n_sequences, int n_drafted);
  /// A token of an answer came.
  void observe_token(Sequence& s);

  const SpeculationCounts& counts() const noexcept { return counts_; }
  /// Time that drafting took in the step proposed last.
  double draft_ms() const noexcept { return draft_ms_; }

 private:
  int longest(const Sequence& s, int max_tokens) const;
  void look_up(const Candidate& candidate, int n_sequences, int& n_drafted);
  void draft_with_model(std::span<const Candidate> candidates, int n_sequences);
  bool draft_one(std::span<const Candidate> candidates, int depth);
  void add(Sequence& s, std::int32_t id) const;
  bool may_draft(std::int32_t id) const;
  double draft_share(int n_sequences) const;

  SpeculativeOptions options_;
  const LoadedModel& model_;
  ModelRunner& runner_;
  std::vector<std::int32_t> skip_layers_;  // ascending
  SharedSpeculation shared_;
  std::vector<double> draft_token_ms_;  // by sequences of a draft step - 1; 0: unknown
  SpeculationCounts counts_;
  double draft_ms_ = 0;
  // Buffers of a step.
  std::vector<std::int32_t> found_;
  std::vector<Sequence*> drafting_;
  std::vector<SequenceRows> rows_;
};

}  // namespace triptych
