#include "engine/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "engine/block_pool.h"

namespace triptych {
namespace {

// Tokens of an answer that are paid for when it begins: a tenant with many short requests at once would else
// take all places before anything was charged.
constexpr std::int64_t kAdvanceTokens = 64;
// However short the time, so much of a prompt goes on in a step.
constexpr std::int64_t kMinPrefillRows = 16;
// Of the time of a step, what prompts and towers get though decoding alone takes longer.
constexpr double kMinShare = 0.25;

// Blocks a sequence still has to take before it holds n tokens.
std::int64_t missing_blocks(const SequenceState& s, std::int64_t n_tokens) {
  return std::max<std::int64_t>(0, blocks_for(n_tokens) - s.n_blocks);
}

bool decodes(const SequenceState& s) { return s.n_tokens - s.n_computed == 1 && s.n_ready >= s.n_tokens; }

// Rows that a prompt could feed now.
std::int64_t n_pending(const SequenceState& s) {
  return std::max<std::int64_t>(0, std::min(s.n_tokens, s.n_ready) - s.n_computed);
}

}  // namespace

ClockMs steady_clock_ms() {
  return [] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
}

Ticket Scheduler::enter(std::uint64_t id, int priority, std::string_view tenant) {
  return {.id = id, .priority = priority, .arrived_ms = clock_(), .tenant = shares_.enter(tenant)};
}

Ticket Scheduler::fork(const Ticket& request, std::int64_t n_shared) {
  Ticket out = request;
  shares_.enter_again(out.tenant);
  out.n_charged = n_shared;
  return out;
}

void Scheduler::start(Ticket& ticket, std::int64_t n_prompt, std::int64_t max_answer) {
  ticket.started = true;
  progress(ticket, n_prompt + std::min(max_answer, kAdvanceTokens));
}

void Scheduler::progress(Ticket& ticket, std::int64_t n_tokens) {
  if (n_tokens <= ticket.n_charged) return;
  shares_.charge(ticket.tenant, n_tokens - ticket.n_charged);
  ticket.n_charged = n_tokens;
}

void Scheduler::leave(Ticket& ticket, std::int64_t n_tokens) {
  if (ticket.started) shares_.charge(ticket.tenant, n_tokens - ticket.n_charged);
  ticket.n_charged = n_tokens;
  shares_.leave(ticket.tenant);
}

std::int64_t Scheduler::level(const Ticket& ticket, double now_ms) const {
  return ticket.priority -
         static_cast<std::int64_t>(std::floor((now_ms - ticket.arrived_ms) / limits_.aging_ms));
}

std::size_t Scheduler::next(std::span<const Ticket* const> waiting) const {
  TRIPTYCH_CHECK(!waiting.empty(), "nobody waits");
  const double now_ms = clock_();
  const auto key = [&](const Ticket& t) {
    return std::tuple(level(t, now_ms), !t.started, shares_.served(t.tenant), t.id);
  };
  const auto first = std::min_element(waiting.begin(), waiting.end(),
                                      [&](const Ticket* a, const Ticket* b) { return key(*a) < key(*b); });
  return static_cast<std::size_t>(first - waiting.begin());
}

bool Scheduler::precedes(const Ticket& a, const Ticket& b) const noexcept {
  const auto key = [&](const Ticket& t) {
    return std::tuple(t.arrived_ms + t.priority * limits_.aging_ms, t.id);
  };
  return key(a) < key(b);
}

bool Scheduler::admits(std::span<const SequenceState> running, const SequenceState& next,
                       std::int64_t n_free_blocks) const {
  if (running.size() >= static_cast<std::size_t>(limits_.max_sequences)) return false;
  for (const SequenceState& s : running) n_free_blocks -= missing_blocks(s, s.n_tokens);
  return missing_blocks(next, next.n_tokens + 1) <= n_free_blocks;
}

StepBudget Scheduler::budget(std::span<const SequenceState> running, bool encodes, double spent_ms) const {
  StepBudget out;
  if (limits_.max_step_ms <= 0 || std::none_of(running.begin(), running.end(), decodes)) return out;
  const bool prefills = std::any_of(running.begin(), running.end(),
                                    [](const SequenceState& s) { return !decodes(s) && n_pending(s) > 0; });
  const double left_ms =
      std::max(limits_.max_step_ms - costs_.decode_ms() - spent_ms, kMinShare * limits_.max_step_ms);
  const double half = encodes && prefills ? 0.5 : 1.0;
  out.encode_ms = half * left_ms;
  const double row_ms = costs_.prefill_row_ms();
  const double rows = row_ms > 0 ? half * left_ms / row_ms : 0;  // unknown: the first rows will tell
  out.prefill_rows =
      std::max(kMinPrefillRows,
               static_cast<std::int64_t>(std::min(rows, static_cast<double>(limits_.max_batch_tokens))));
  return out;
}

void Scheduler::assign_rows(std::span<const SequenceState> running, std::int64_t max_prefill_rows,
                            std::vector<ScheduledRows>& out) const {
  out.clear();
  std::int64_t budget = limits_.max_batch_tokens;
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (!decodes(running[i])) continue;
    out.push_back({i, 1});
    --budget;
  }
  budget = std::min(budget, max_prefill_rows);
  for (std::size_t i = 0; i < running.size() && budget > 0; ++i) {
    if (decodes(running[i]) || n_pending(running[i]) == 0) continue;
    out.push_back({i, std::min(budget, n_pending(running[i]))});
    budget -= out.back().n_rows;
  }
}

void Scheduler::schedule(std::span<const SequenceState> running, std::int64_t n_free_blocks,
                         std::int64_t max_prefill_rows, Schedule& out) const {
  out.preempted.clear();
  for (;;) {
    assign_rows(running, max_prefill_rows, out.rows);
    std::int64_t n_missing = 0;
    for (const ScheduledRows& one : out.rows)
      n_missing += missing_blocks(running[one.sequence], running[one.sequence].n_computed + one.n_rows);
    out.n_missing_blocks = std::max<std::int64_t>(0, n_missing - n_free_blocks);
    if (out.n_missing_blocks == 0 || running.size() <= 1) return;
    n_free_blocks += running.back().n_owned_blocks;
    running = running.first(running.size() - 1);
    out.preempted.push_back(running.size());
  }
}

}  // namespace triptych
