// A grammar matched byte by byte. Where a text has come to is a set of stacks: states of the network, each
// above the states to return to. Stacks share their lower parts; sets are numbered when they are first met,
// and the step from one to the next is looked up from then on. So a text costs a table lookup a byte, and
// only what is met takes memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace triptych {

/// Not thread-safe.
class GrammarAutomaton {
 public:
  using State = std::uint32_t;
  /// No text of the language begins so.
  static constexpr State kDead = 0;

  /// Takes up to about `max_bytes` for what it meets.
  explicit GrammarAutomaton(std::shared_ptr<const Grammar> grammar, std::size_t max_bytes = kDefaultBytes);

  State start() const noexcept { return start_; }
  /// Throws Error(kInvalidArgument) when memory or work run out: the grammar is ambiguous without measure.
  State next(State state, std::uint8_t byte) {
    const State to = rows_[std::size_t{state} * n_classes_ + grammar_->class_of(byte)];
    return to != kUnknown ? to : expand(state, byte);
  }
  State next(State state, std::string_view bytes);
  /// The text is one of the language.
  bool may_end(State state) const { return sets_[state].may_end; }
  /// No byte may follow.
  bool must_end(State state) const { return sets_[state].begin == sets_[state].end; }

  /// Allows as much new work as one call of a user may take; next() counts it down.
  void begin_work() noexcept { work_left_ = kMaxWork; }
  /// Half of its memory is taken: a new automaton should go on.
  bool is_full() const noexcept { return bytes() > max_bytes_ / 2; }
  std::size_t bytes() const noexcept;
  std::size_t n_states() const noexcept { return sets_.size(); }
  /// The state of another automaton of the same grammar.
  State adopt(const GrammarAutomaton& other, State state);

 private:
  static constexpr std::size_t kDefaultBytes = std::size_t{32} << 20;
  static constexpr std::size_t kMaxWork = std::size_t{1} << 22;
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr State kUnknown = kNone;
  struct StackNode {
    std::uint32_t state = 0;
    std::uint32_t below = kNone;  // to return to
    std::uint32_t depth = 0;      // nodes below
    std::uint32_t seen = 0;       // by the closure of this number
  };
  struct StackSet {
    std::uint32_t begin = 0;  // of stack_tops_
    std::uint32_t end = 0;
    bool may_end = false;
  };

  State expand(State state, std::uint8_t byte);
  std::uint32_t node(std::uint32_t state, std::uint32_t below);
  void open_closure();
  void visit(std::uint32_t state, std::uint32_t below);
  void enter(const Grammar::Edge& call, const StackNode& from);
  State close_closure();
  /// Counts work and what is held against the limits.
  void check_limits(std::size_t work = 1);
  std::size_t work_of(std::uint32_t state) const { return 1 + grammar_->edges(state).size() / 16; }
  void grow_node_slots();
  void grow_set_slots();

  std::shared_ptr<const Grammar> grammar_;
  std::size_t max_bytes_;
  std::uint32_t n_classes_;
  State start_ = kDead;
  std::vector<StackNode> nodes_;
  std::vector<std::uint32_t> node_slots_;  // open addressing; kNone is free; a power of two
  std::vector<StackSet> sets_;
  std::vector<std::uint32_t> stack_tops_;
  std::vector<std::uint32_t> set_slots_;
  std::vector<State> rows_;  // [n_states, n_classes]
  std::size_t work_left_ = kMaxWork;
  // The closure at work.
  std::uint32_t closure_ = 0;
  std::vector<std::uint32_t> to_visit_;
  std::vector<std::uint32_t> tops_;
  bool may_end_ = false;
};

}  // namespace triptych
