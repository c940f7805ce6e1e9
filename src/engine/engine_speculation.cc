// Drafts in a step of an engine: room for them, and the tokens that come of the rows that judge them.
#include <algorithm>

#include "engine/engine.h"
#include "engine/sequence.h"

namespace triptych {

// Drafts take what a step has left: rows of its budget and free blocks, none for which another sequence would
// be preempted. Not beside prompts, whose rows keep the processor busy, nor under an observer, which measures
// steps.
void Engine::propose_drafts() {
  n_drafted_ = 0;
  if (!speculator_) return;
  drop_drafts();
  const bool all_decode =
      std::all_of(schedule_.rows.begin(), schedule_.rows.end(), [&](const ScheduledRows& one) {
        const Sequence& s = *running_[one.sequence];
        return one.n_rows == 1 && s.n_computed >= s.n_prompt && s.n_tokens() == s.n_computed + 1;
      });
  if (!all_decode || observer_ != nullptr) return;
  candidates_.clear();
  std::int64_t n_rows_left = options_.max_batch_tokens - static_cast<std::int64_t>(schedule_.rows.size());
  std::int64_t n_blocks_left = std::min(pool_->n_free(), n_available_blocks());
  for (const ScheduledRows& one : schedule_.rows) {
    Sequence& s = *running_[one.sequence];
    const auto n_held = static_cast<std::int64_t>(s.blocks.size());
    const std::int64_t in_blocks =
        (n_held + std::min<std::int64_t>(n_blocks_left, 1)) * kBlockTokens - s.n_tokens();
    const std::int64_t most =
        std::min<std::int64_t>({n_rows_left, in_blocks, options_.speculation.num_speculative_tokens});
    if (s.cancelled || most < 1) continue;
    candidates_.push_back({&s, static_cast<int>(most)});
    n_rows_left -= most;
    n_blocks_left -= std::max<std::int64_t>(0, blocks_for(s.n_tokens() + most) - n_held);
  }
  try {
    for (const Speculator::Candidate& one : candidates_)
      reserve_blocks(*one.sequence, one.sequence->n_tokens() + one.max_tokens);
  } catch (...) {  // no memory for the list of blocks: without drafts, then
    return;
  }
  speculator_->propose(candidates_, static_cast<int>(schedule_.rows.size()));
  for (const Speculator::Candidate& one : candidates_) {
    const int n = one.sequence->draft->n_tokens();
    give_back_blocks(*one.sequence, one.sequence->n_tokens() + n);
    n_drafted_ += n;
    for (ScheduledRows& rows : schedule_.rows)
      if (n > 0 && running_[rows.sequence].get() == one.sequence) rows.n_rows += n;
    one.sequence->result.timings.decode_ms += speculator_->draft_ms();
  }
}

void Engine::drop_drafts() {
  for (const auto& s : running_)
    if (s->draft) s->draft->clear();
}

// Blocks behind the first n tokens. They are the sequence's alone: nothing else was ever told of them.
void Engine::give_back_blocks(Sequence& s, std::int64_t n_tokens) {
  const auto n_kept = static_cast<std::size_t>(blocks_for(n_tokens));
  if (s.blocks.size() <= n_kept) return;
  pool_->release(std::span(s.blocks).subspan(n_kept));
  s.blocks.resize(n_kept);
}

void Engine::note_step_cost(double ms) {
  if (!speculator_ || observer_ != nullptr) return;
  const bool all_decode = std::all_of(in_batch_.begin(), in_batch_.end(), [](const InBatch& one) {
    const Sequence& s = *one.sequence;
    return s.n_computed >= s.n_prompt && one.n_rows == 1 + s.draft->n_tokens();
  });
  if (all_decode) speculator_->observe_step(static_cast<int>(in_batch_.size()), n_drafted_, ms);
}

// The token of each row, up to the first that was not drafted so: the rows behind it followed something else.
// What an answer's owner does at a token ends it there, as it would without a draft.
void Engine::accept_rows(Sequence& s, const TensorView& logits) {
  const std::span<const std::int32_t> drafted = s.draft ? s.draft->tokens() : std::span<const std::int32_t>();
  std::size_t n_accepted = 0;
  for (;;) {
    const TensorView row = logits.row(static_cast<std::int64_t>(n_accepted));
    const std::int64_t n_before = s.n_tokens();
    accept_token(s, {row.cf32(), static_cast<std::size_t>(row.numel())});
    if (s.draft) speculator_->observe_token(s);
    const bool is_drafted =
        n_accepted < drafted.size() && s.n_tokens() > n_before && s.tokens.back() == drafted[n_accepted];
    if (!is_drafted) break;
    ++n_accepted;
    if (s.finished()) break;
    for (std::size_t i = 0; i < n_outputs_; ++i)
      if (output_sequences_[i] == &s) call_back(i);
    take_cancels();
    if (s.finished() || s.cancelled) break;
    ++s.n_computed;
  }
  if (drafted.empty()) return;
  speculator_->observe_draft(s, static_cast<int>(n_accepted), static_cast<int>(in_batch_.size()), n_drafted_);
  s.draft->clear();
  if (!s.finished()) give_back_blocks(s, s.n_tokens());
}

}  // namespace triptych
