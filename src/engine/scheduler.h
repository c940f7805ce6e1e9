// Who runs, and how much of each request goes into a step. Arithmetic on counts and on a clock that is handed
// in: no model, no cache, no thread.
//
// Requests wait in the order of their level, tenant and arrival. The level is the priority (lower first),
// lowered by one for each stretch of time that a request has waited, so that nobody starves. Within a level
// the tenant that was served least goes first (fair_shares.h), of its requests the oldest. A request that
// does not fit is waited for: others do not slip past it.
//
// In a step sequences that decode go first, with one row each; prompts share what is left of the rows and of
// the time, and the tower works in what remains of it. Blocks are taken as sequences grow. When they run out
// the last in rank (priority and arrival) is preempted: it gives back its blocks, waits before those of its
// level that have not begun, and computes its tokens again when there is room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "engine/fair_shares.h"
#include "engine/step_costs.h"

namespace triptych {

/// Milliseconds since a fixed moment.
using ClockMs = std::function<double()>;
/// The machine's, which never goes back.
ClockMs steady_clock_ms();

struct SchedulerLimits {
  std::int64_t max_batch_tokens = 1024;  // rows of a step, but one for each sequence that decodes
  int max_sequences = 8;                 // running at once
  // While others decode, a step should take no longer: prompts and towers are cut. 0: no limit.
  double max_step_ms = 0;
  double aging_ms = 10'000;  // waited: worth a level of priority
};

/// Where a request stands among the others. Made by Scheduler::enter.
struct Ticket {
  std::uint64_t id = 0;  // ascending as they come
  int priority = 0;      // lower first
  double arrived_ms = 0;
  FairShares::Tenant tenant = 0;
  std::int64_t n_charged = 0;  // tokens, to the tenant
  bool started = false;        // it ran before, and gave way
};

/// What the scheduler must know of a sequence.
struct SequenceState {
  std::int64_t n_tokens = 0;        // prompt and answer so far; more than n_computed
  std::int64_t n_computed = 0;      // of them, in the cache
  std::int64_t n_blocks = 0;        // held
  std::int64_t n_owned_blocks = 0;  // of them, free once it is preempted
  /// Of the tokens, so many may be fed: what is behind waits for its pictures.
  std::int64_t n_ready = std::numeric_limits<std::int64_t>::max();
};

struct ScheduledRows {
  std::size_t sequence = 0;  // index among the running
  std::int64_t n_rows = 0;

  friend bool operator==(const ScheduledRows&, const ScheduledRows&) = default;
};

struct Schedule {
  std::vector<ScheduledRows> rows;     // of the step, in this order
  std::vector<std::size_t> preempted;  // indices among the running, the last first
  std::int64_t n_missing_blocks = 0;   // for these rows, though all but the first are preempted
};

/// What a step may spend beside the sequences that decode.
struct StepBudget {
  std::int64_t prefill_rows = std::numeric_limits<std::int64_t>::max();
  double encode_ms = std::numeric_limits<double>::infinity();  // of the tower; infinity: until it is done

  bool is_cut() const noexcept { return encode_ms < std::numeric_limits<double>::infinity(); }
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits, ClockMs clock = steady_clock_ms())
      : limits_(limits), clock_(std::move(clock)) {}

  double now_ms() const { return clock_(); }
  FairShares& shares() noexcept { return shares_; }
  const StepCosts& costs() const noexcept { return costs_; }

  // The life of a request: enter, start (again after each preemption), progress, leave.
  Ticket enter(std::uint64_t id, int priority, std::string_view tenant);
  /// A further answer to a request that runs, beside which it begins: `n_shared` of its tokens are paid for.
  Ticket fork(const Ticket& request, std::int64_t n_shared);
  /// It runs: its tenant pays for the prompt, and for the beginning of an answer of at most `max_answer`, in
  /// advance.
  void start(Ticket& ticket, std::int64_t n_prompt, std::int64_t max_answer);
  /// It has `n_tokens` now.
  void progress(Ticket& ticket, std::int64_t n_tokens);
  /// It has ended with `n_tokens`; what was paid for more is given back.
  void leave(Ticket& ticket, std::int64_t n_tokens);

  /// Which of those that wait, one at least, is next.
  std::size_t next(std::span<const Ticket* const> waiting) const;
  /// The rank among those that run, which time does not change: a level of priority is worth aging_ms of
  /// arrival.
  bool precedes(const Ticket& a, const Ticket& b) const noexcept;

  /// Whether `next`, which waits, may start beside `running`: a place is free, and blocks for all its tokens
  /// and one more beside what the running need for theirs.
  bool admits(std::span<const SequenceState> running, const SequenceState& next,
              std::int64_t n_free_blocks) const;

  /// By what steps have cost lately. `encodes`: the tower has work; `spent_ms`: of this step, by the tower.
  StepBudget budget(std::span<const SequenceState> running, bool encodes, double spent_ms = 0) const;
  /// The next step of `running`, which is ordered by rank. The first is never preempted: the cache must have
  /// room for one whole context. `out` is overwritten.
  void schedule(std::span<const SequenceState> running, std::int64_t n_free_blocks,
                std::int64_t max_prefill_rows, Schedule& out) const;
  void note_step(const StepMeasurement& step) noexcept { costs_.note(step); }

 private:
  std::int64_t level(const Ticket& ticket, double now_ms) const;
  void assign_rows(std::span<const SequenceState> running, std::int64_t max_prefill_rows,
                   std::vector<ScheduledRows>& out) const;

  SchedulerLimits limits_;
  ClockMs clock_;
  FairShares shares_;
  StepCosts costs_;
};

}  // namespace triptych
