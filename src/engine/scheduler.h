// Which sequences take part in a step, and with how many rows. Arithmetic on counts: no model, no cache.
//
// A sequence whose next token is all that is left to compute goes first, with one row; prompts share what is
// left of the step. Blocks are taken as sequences grow. When they run out the youngest sequence is preempted:
// it gives back its blocks, waits before all that have not begun, and computes its tokens again when there is
// room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace triptych {

struct SchedulerLimits {
  std::int64_t max_batch_tokens = 1024;  // rows of a step, but one for each sequence that decodes
  int max_sequences = 8;                 // running at once
};

/// What the scheduler must know of a sequence.
struct SequenceState {
  std::int64_t n_tokens = 0;        // prompt and answer so far; more than n_computed
  std::int64_t n_computed = 0;      // of them, in the cache
  std::int64_t n_blocks = 0;        // held
  std::int64_t n_owned_blocks = 0;  // of them, free once it is preempted
};

struct ScheduledRows {
  std::size_t sequence = 0;  // index among the running
  std::int64_t n_rows = 0;

  friend bool operator==(const ScheduledRows&, const ScheduledRows&) = default;
};

struct Schedule {
  std::vector<ScheduledRows> rows;     // of the step, in this order
  std::vector<std::size_t> preempted;  // indices among the running, the youngest first
  std::int64_t n_missing_blocks = 0;   // for these rows, though all but the oldest are preempted
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits) : limits_(limits) {}

  /// Whether `next`, which waits, may start beside `running`: a place is free, and blocks for all its tokens
  /// and one more beside what the running need for theirs.
  bool admits(std::span<const SequenceState> running, const SequenceState& next,
              std::int64_t n_free_blocks) const;

  /// The next step of `running`, which is ordered by age, the oldest first. The oldest is never preempted:
  /// the cache must have room for one whole context. `out` is overwritten.
  void schedule(std::span<const SequenceState> running, std::int64_t n_free_blocks, Schedule& out) const;

 private:
  void assign_rows(std::span<const SequenceState> running, std::vector<ScheduledRows>& out) const;

  SchedulerLimits limits_;
};

}  // namespace triptych
