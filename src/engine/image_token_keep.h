// The pictures of one sequence of which only some tokens stay (ImageTokenOptions): the whole prompt, what was
// chosen, and what became of the prompt. A sequence without such a picture has none of this.
//
// Tokens that go leave the sequence: its tokens, positions and runs are those of what stayed, so that a
// token's index is its place in the cache as ever. Positions are the ones of the whole prompt. A prompt is
// cut where a choice is due: the rows up to there are in the cache before any row behind is computed, so that
// what follows, and what computes it again after a preemption, sees the same keys.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "models/model.h"

namespace triptych {

struct Sequence;

class ImageTokenKeep {
 public:
  /// For a sequence that has its whole prompt and its media; null when all tokens of them stay.
  static std::unique_ptr<ImageTokenKeep> make(const Sequence& s, int n_axes);

  /// Tokens of the sequence that may be computed before the next choice: up to the next cut, or all, less
  /// those that the tower's rows will leave out.
  std::int64_t n_schedulable(const Sequence& s) const;
  /// Tokens that it will have in the cache at once, as far as its prompt goes.
  std::int64_t n_at_most(const Sequence& s) const;
  /// Tokens of the sequence's beginning that may be given to others under its key: no row of text whose
  /// attention is still wanted.
  std::int64_t n_publishable(const Sequence& s) const;
  std::int64_t n_dropped() const noexcept { return static_cast<std::int64_t>(dropped_.size()); }

  // Before the prompt is computed, by rows of the tower.

  /// Its rows are chosen by diversity.
  bool chooses_rows(std::size_t item) const { return items_[item].cut == kBeforePrefill; }
  bool is_chosen(std::size_t item) const { return !items_[item].kept.empty(); }
  /// Of an item for which chooses_rows(): how many of its media rows stay.
  std::int64_t n_kept_rows(std::size_t item) const;
  std::int64_t n_rows(std::size_t item) const { return static_cast<std::int64_t>(items_[item].rows.size()); }
  /// These media rows of it stay, ascending.
  void choose_rows(std::size_t item, std::vector<std::int32_t> kept);
  std::span<const std::int32_t> kept_rows(std::size_t item) const { return items_[item].kept; }

  // In the cache.

  /// Items whose choice is due once n tokens are in the cache.
  std::vector<std::size_t> due(std::int64_t n_computed) const;
  /// Tokens of the sequence, as it is, that are the item's, in the order of its rows.
  std::vector<std::int32_t> tokens_of(std::size_t item) const;
  ImageTokenSelection selection(std::size_t item) const { return items_[item].options.selection; }
  /// A score for each of tokens_of(): the highest stay. It has no effect when it is chosen already.
  void choose(std::size_t item, std::span<const double> scores);
  /// The attention that they received so far; all 0 when no text stands behind the item.
  std::vector<double> received_by(std::size_t item) const;
  /// Of the sequence's first n tokens, those that stay when `items` are dropped from, ascending.
  std::vector<std::int32_t> tokens_left(std::span<const std::size_t> items, std::int64_t n) const;
  /// The sequence without what was not chosen of `items`.
  void drop(std::span<const std::size_t> items, Sequence& s);
  /// The sequence has lost its cache: what left it is in the sequence again, to be computed. Choices stay.
  void restore(Sequence& s);

  // Attention received in a step, from rows of text (received_attention.h).

  /// Rows of the sequence, [first, end) each, among the next n whose attention counts.
  struct Rows {
    std::int64_t first = 0;
    std::int64_t end = 0;
  };
  std::vector<Rows> listening_rows(const Sequence& s, std::int64_t n_rows) const;
  /// Sums of a step that begins, [n] tokens of the sequence; they count once the step has ended well. Whole
  /// numbers, whose sum does not depend on which rows share a step.
  std::span<std::int64_t> begin_step(std::int64_t n);
  void end_step();

 private:
  static constexpr std::int64_t kBeforePrefill = -1;
  struct Row {
    std::int32_t media_row = 0;
    std::int32_t token = 0;  // of the whole prompt
  };
  struct Item {
    ImageTokenOptions options;
    std::vector<Row> rows;           // by media row
    std::int64_t cut = 0;            // tokens of the whole prompt before the choice, or kBeforePrefill
    std::vector<std::int32_t> kept;  // indices of rows, ascending; empty: not chosen
    bool dropped = false;            // the others have left the sequence
    std::int64_t n_kept() const { return options.n_kept(static_cast<std::int64_t>(rows.size())); }
    std::int64_t n_to_drop() const { return static_cast<std::int64_t>(rows.size()) - n_kept(); }
  };

  ImageTokenKeep() = default;
  std::int64_t index_of(std::int64_t token) const;
  std::int64_t n_left_out_before(std::int64_t token) const;
  std::int64_t next_cut() const;
  void write_prompt(Sequence& s);

  int n_axes_ = 1;
  std::vector<std::int32_t> tokens_, positions_;  // of the whole prompt
  std::vector<MediaRun> runs_;
  std::vector<Item> items_;             // one for each of the sequence's media
  std::vector<std::int32_t> dropped_;   // tokens of the whole prompt that are not in the sequence, ascending
  std::vector<std::int32_t> left_;      // the others, ascending
  std::vector<std::int64_t> step_;      // attention received in this step, by token of the sequence
  std::vector<std::int64_t> received_;  // before, by token of the whole prompt
};

}  // namespace triptych
