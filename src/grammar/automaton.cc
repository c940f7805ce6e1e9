#include "grammar/automaton.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace triptych {
namespace {

std::size_t mixed(std::uint64_t a) {
  a *= 0x9E3779B97F4A7C15U;
  return static_cast<std::size_t>(a ^ (a >> 29));
}

std::size_t hash_of(std::span<const std::uint32_t> tops, bool may_end) {
  std::uint64_t h = may_end ? 1 : 2;
  for (const std::uint32_t top : tops) h = mixed(h ^ top) + 0x632BE59BD9B4E019U;
  return static_cast<std::size_t>(h);
}

}  // namespace

GrammarAutomaton::GrammarAutomaton(std::shared_ptr<const Grammar> grammar, std::size_t max_bytes)
    : grammar_(std::move(grammar)), max_bytes_(max_bytes), n_classes_(grammar_->n_classes()) {
  node_slots_.assign(64, kNone);
  set_slots_.assign(64, kNone);
  open_closure();
  const State dead = close_closure();
  TRIPTYCH_CHECK(dead == kDead);
  std::fill(rows_.begin(), rows_.end(), kDead);
  open_closure();
  visit(grammar_->start(), kNone);
  start_ = close_closure();
}

std::size_t GrammarAutomaton::bytes() const noexcept {
  return nodes_.size() * sizeof(StackNode) + sets_.size() * sizeof(StackSet) +
         (node_slots_.size() + set_slots_.size() + stack_tops_.size() + rows_.size()) * sizeof(std::uint32_t);
}

void GrammarAutomaton::check_limits(std::size_t work) {
  if (work_left_ < work || bytes() > max_bytes_)
    fail(ErrorCode::kInvalidArgument,
         "the constraint can be read in too many ways at once: expected a grammar whose states fit {} MiB",
         max_bytes_ >> 20);
  work_left_ -= work;
}

// The node of that state above `below`.
std::uint32_t GrammarAutomaton::node(std::uint32_t state, std::uint32_t below) {
  std::size_t slot = mixed((std::uint64_t{below} << 32) | state) & (node_slots_.size() - 1);
  for (; node_slots_[slot] != kNone; slot = (slot + 1) & (node_slots_.size() - 1)) {
    const StackNode& found = nodes_[node_slots_[slot]];
    if (found.state == state && found.below == below) return node_slots_[slot];
  }
  check_limits();
  const auto index = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({.state = state, .below = below, .depth = below == kNone ? 0 : nodes_[below].depth + 1});
  node_slots_[slot] = index;
  if (nodes_.size() * 2 > node_slots_.size()) grow_node_slots();
  return index;
}

void GrammarAutomaton::grow_node_slots() {
  node_slots_.assign(node_slots_.size() * 2, kNone);
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    std::size_t slot =
        mixed((std::uint64_t{nodes_[i].below} << 32) | nodes_[i].state) & (node_slots_.size() - 1);
    while (node_slots_[slot] != kNone) slot = (slot + 1) & (node_slots_.size() - 1);
    node_slots_[slot] = i;
  }
}

void GrammarAutomaton::open_closure() {
  ++closure_;
  to_visit_.clear();
  tops_.clear();
  may_end_ = false;
}

void GrammarAutomaton::visit(std::uint32_t state, std::uint32_t below) {
  const std::uint32_t depth = below == kNone ? 0 : nodes_[below].depth + 1;
  if (depth + grammar_->needed_depth(state) > kMaxGrammarDepth) return;
  const std::uint32_t index = node(state, below);
  if (std::exchange(nodes_[index].seen, closure_) != closure_) to_visit_.push_back(index);
}

// Nothing is left of a rule behind its last call: the callee returns to where the rule would.
void GrammarAutomaton::enter(const Grammar::Edge& call, const StackNode& from) {
  const std::uint32_t callee = grammar_->rule_start(call.rule);
  if (call.is_tail) {
    visit(callee, from.below);
  } else if (from.depth + std::max(grammar_->needed_depth(call.target), grammar_->needed_depth(callee) + 1) <=
             kMaxGrammarDepth) {
    visit(callee, node(call.target, from.below));
  }
}

// Follows edges that read nothing, from all nodes to visit; numbers the set of those that read on.
GrammarAutomaton::State GrammarAutomaton::close_closure() {
  while (!to_visit_.empty()) {
    const std::uint32_t index = to_visit_.back();
    to_visit_.pop_back();
    const StackNode here = nodes_[index];
    check_limits(work_of(here.state));
    bool reads = false;
    for (const Grammar::Edge& edge : grammar_->edges(here.state)) {
      if (edge.kind == Grammar::EdgeKind::kBytes)
        reads = true;
      else if (edge.kind == Grammar::EdgeKind::kEmpty)
        visit(edge.target, here.below);
      else
        enter(edge, here);
    }
    if (reads) tops_.push_back(index);
    if (!grammar_->is_final(here.state)) continue;
    if (here.below == kNone)
      may_end_ = true;
    else
      visit(nodes_[here.below].state, nodes_[here.below].below);
  }
  std::sort(tops_.begin(), tops_.end());
  std::size_t slot = hash_of(tops_, may_end_) & (set_slots_.size() - 1);
  for (; set_slots_[slot] != kNone; slot = (slot + 1) & (set_slots_.size() - 1)) {
    const StackSet& found = sets_[set_slots_[slot]];
    if (found.may_end == may_end_ && std::equal(tops_.begin(), tops_.end(), stack_tops_.begin() + found.begin,
                                                stack_tops_.begin() + found.end))
      return set_slots_[slot];
  }
  check_limits();
  const auto state = static_cast<State>(sets_.size());
  const auto begin = static_cast<std::uint32_t>(stack_tops_.size());
  stack_tops_.insert(stack_tops_.end(), tops_.begin(), tops_.end());
  sets_.push_back(
      {.begin = begin, .end = static_cast<std::uint32_t>(stack_tops_.size()), .may_end = may_end_});
  rows_.resize(rows_.size() + n_classes_, kUnknown);
  set_slots_[slot] = state;
  if (sets_.size() * 2 > set_slots_.size()) grow_set_slots();
  return state;
}

void GrammarAutomaton::grow_set_slots() {
  set_slots_.assign(set_slots_.size() * 2, kNone);
  for (State s = 0; s < sets_.size(); ++s) {
    const std::span<const std::uint32_t> tops =
        std::span(stack_tops_).subspan(sets_[s].begin, sets_[s].end - sets_[s].begin);
    std::size_t slot = hash_of(tops, sets_[s].may_end) & (set_slots_.size() - 1);
    while (set_slots_[slot] != kNone) slot = (slot + 1) & (set_slots_.size() - 1);
    set_slots_[slot] = s;
  }
}

GrammarAutomaton::State GrammarAutomaton::expand(State state, std::uint8_t byte) {
  open_closure();
  for (std::uint32_t i = sets_[state].begin; i < sets_[state].end; ++i) {
    const StackNode top = nodes_[stack_tops_[i]];
    check_limits(work_of(top.state));
    for (const Grammar::Edge& edge : grammar_->edges(top.state))
      if (edge.kind == Grammar::EdgeKind::kBytes && edge.first <= byte && byte <= edge.last)
        visit(edge.target, top.below);
  }
  const State to = close_closure();
  rows_[std::size_t{state} * n_classes_ + grammar_->class_of(byte)] = to;
  return to;
}

GrammarAutomaton::State GrammarAutomaton::next(State state, std::string_view bytes) {
  for (const char c : bytes) {
    if (state == kDead) break;
    state = next(state, static_cast<std::uint8_t>(c));
  }
  return state;
}

GrammarAutomaton::State GrammarAutomaton::adopt(const GrammarAutomaton& other, State state) {
  std::vector<std::uint32_t> stack;
  open_closure();
  for (std::uint32_t i = other.sets_[state].begin; i < other.sets_[state].end; ++i) {
    for (std::uint32_t n = other.stack_tops_[i]; n != kNone; n = other.nodes_[n].below)
      stack.push_back(other.nodes_[n].state);
    std::uint32_t below = kNone;
    for (; stack.size() > 1; stack.pop_back()) below = node(stack.back(), below);
    visit(stack.back(), below);
    stack.clear();
  }
  may_end_ = other.sets_[state].may_end;
  return close_closure();
}

}  // namespace triptych
