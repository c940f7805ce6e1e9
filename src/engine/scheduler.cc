#include "engine/scheduler.h"

#include <algorithm>

#include "engine/block_pool.h"

namespace triptych {
namespace {

// Blocks a sequence still has to take before it holds n tokens.
std::int64_t missing_blocks(const SequenceState& s, std::int64_t n_tokens) {
  return std::max<std::int64_t>(0, blocks_for(n_tokens) - s.n_blocks);
}

}  // namespace

bool Scheduler::admits(std::span<const SequenceState> running, const SequenceState& next,
                       std::int64_t n_free_blocks) const {
  if (running.size() >= static_cast<std::size_t>(limits_.max_sequences)) return false;
  for (const SequenceState& s : running) n_free_blocks -= missing_blocks(s, s.n_tokens);
  return missing_blocks(next, next.n_tokens + 1) <= n_free_blocks;
}

void Scheduler::assign_rows(std::span<const SequenceState> running, std::vector<ScheduledRows>& out) const {
  out.clear();
  std::int64_t budget = limits_.max_batch_tokens;
  const auto n_pending = [&](std::size_t i) { return running[i].n_tokens - running[i].n_computed; };
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (n_pending(i) != 1) continue;
    out.push_back({i, 1});
    --budget;
  }
  for (std::size_t i = 0; i < running.size() && budget > 0; ++i) {
    if (n_pending(i) <= 1) continue;
    out.push_back({i, std::min(budget, n_pending(i))});
    budget -= out.back().n_rows;
  }
}

void Scheduler::schedule(std::span<const SequenceState> running, std::int64_t n_free_blocks,
                         Schedule& out) const {
  out.preempted.clear();
  for (;;) {
    assign_rows(running, out.rows);
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
