// A step of an engine: media, the ragged batch, and the tokens that come of it.
#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/memory.h"
#include "base/error.h"
#include "base/flush_denormals.h"
#include "base/profile.h"
#include "engine/engine.h"
#include "engine/sequence.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

// Media that rows of the next steps stand for: from the cache, or through the tower. An observer wants to see
// the tower.
void Engine::encode(Sequence& s, ExecObserver* observer) {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < s.media.size(); ++i)
    if (s.must_encode(i)) missing.push_back(i);
  if (missing.empty()) return;
  std::vector<MediaItem> to_encode;
  std::vector<std::size_t> places;  // of to_encode, in the request
  const Clock::time_point start = Clock::now();
  const ProfileZone zone("vision");
  std::int64_t n_found_rows = 0;
  for (const std::size_t i : missing) {
    MediaItem& item = s.media[i];
    if (observer == nullptr)
      if (auto rows = vision_embeddings_.find(item)) {
        TRIPTYCH_CHECK(rows->view().dim(0) == item.plan.n_tokens, "the cache has {} rows, the plan says {}",
                       rows->view().dim(0), item.plan.n_tokens);
        s.media_rows[i] = std::move(*rows);
        item.pixels = Tensor();
        item.frames.reset();
        ++s.result.n_cached_media;
        n_found_rows += item.plan.n_tokens;
        continue;
      }
    if (item.frames != nullptr) {  // the cache had its rows when the request was made
      item.pixels = model_.model().preprocess(*item.frames, item.plan, &model_.media_pool());
      item.frames.reset();
    }
    to_encode.push_back(
        {item.plan, std::move(item.pixels), item.text_ids, item.fingerprint, item.image_tokens});
    places.push_back(i);
  }
  if (vision_embeddings_.enabled())
    monitor_.looked_for_media(static_cast<std::int64_t>(missing.size()),
                              static_cast<std::int64_t>(missing.size() - to_encode.size()), n_found_rows);
  if (!to_encode.empty()) {
    const Clock::time_point tower_start = Clock::now();
    const TensorView rows = runner_->encode_media(to_encode, observer);
    const double tower_ms = ms_since(tower_start);
    const double ms_a_row = tower_ms / static_cast<double>(std::max<std::int64_t>(rows.dim(0), 1));
    monitor_.encoded(static_cast<std::int64_t>(to_encode.size()), rows.dim(0), runner_->patch_rows(),
                     tower_ms);
    std::int64_t first = 0;
    for (const std::size_t i : places) {
      const std::int64_t n = s.media[i].plan.n_tokens;
      TRIPTYCH_CHECK(first + n <= rows.dim(0), "the tower gave {} rows, the plans say more", rows.dim(0));
      s.media_rows[i] = copy_operand(model_.backend(), rows.rows(first, first + n));
      if (observer == nullptr)
        vision_embeddings_.put(s.media[i], s.media_rows[i].view(), ms_a_row * static_cast<double>(n));
      first += n;
    }
    TRIPTYCH_CHECK(first == rows.dim(0), "the tower gave {} rows, the plans say {}", rows.dim(0), first);
  }
  if (s.keep) drop_encoded_rows(s);
  s.result.timings.encode_ms += ms_since(start);
}

void Engine::accept_token(Sequence& s, std::span<const float> logits) {
  const SamplingParams& params = s.sampler->params();
  TokenEvent event;
  event.token = s.sampler->sample(logits);
  event.choice = s.choice;
  if (params.n_logprobs >= 0)
    s.result.cumulative_logprob =
        s.result.cumulative_logprob.value_or(0) + static_cast<double>(event.token.logprob);
  const std::int32_t id = event.token.id;
  const auto& own = model_.stop_token_ids();
  const bool is_eos = !params.ignore_eos && std::find(own.begin(), own.end(), id) != own.end();
  const bool is_stop = std::find(params.stop_token_ids.begin(), params.stop_token_ids.end(), id) !=
                       params.stop_token_ids.end();
  const bool ends = is_eos || is_stop;
  const Clock::time_point text_start = Clock::now();
  if (!ends) {
    monitor_.token(s);
    s.append(id, model_.info().n_position_axes);
    s.result.token_ids.push_back(id);
    if (s.keeps_logprobs) s.result.tokens.push_back(event.token);
    if (s.text)
      event.text = s.stops.push(s.sampler->is_constrained() ? s.text->push_bytes(s.sampler->last_bytes())
                                                            : s.text->push(id));
  }
  const bool is_whole = !ends && s.sampler->must_end();
  const bool full = s.n_tokens() - s.n_prompt >= s.max_tokens;
  const bool by_string = s.stops.found();
  if ((ends || full || is_whole) && !by_string && s.text) {
    event.text += s.stops.push(s.text->finish());
    if (!s.stops.found()) event.text += s.stops.finish();
  }
  if (s.text) s.result.timings.detokenize_ms += ms_since(text_start);
  s.result.text += event.text;
  if (!ends || !event.text.empty()) output_of(s).events.push_back(std::move(event));
  if (s.stops.found()) s.result.stop_string = s.stops.which();
  if (s.stops.found() || ends || is_whole) {
    finish(s, FinishReason::kStop);
  } else if (full) {
    finish(s, FinishReason::kLength);
  }
}

// A schedule for which blocks are there, or pages of the prefix cache that nobody uses, once its sequences to
// preempt are preempted.
void Engine::make_schedule() {
  for (auto& s : running_) adopt_pages(*s);
  for (;;) {
    note_states();
    const StepBudget budget = scheduler_.budget(states_, encoder_->has_work(), encode_ms_);
    scheduler_.schedule(states_, n_available_blocks(), budget.prefill_rows, schedule_);
    if (!probe_ || (schedule_.preempted.empty() && schedule_.n_missing_blocks == 0)) return;
    release_probe();
  }
}

// The tower goes on: until all that run have their rows, or, while others decode, for a part of the step.
// False: a sequence ended meanwhile, and the others are to be scheduled without it.
bool Engine::encode_running() {
  if (observer_ != nullptr) return encode_observed();
  for (;;) {
    encoder_->gather(running_);
    if (!drop_encoded_rows()) return false;
    if (!encoder_->has_work()) return true;
    note_states();
    const StepBudget budget = scheduler_.budget(states_, true);
    const double start_ms = scheduler_.now_ms();
    encode_failures_.clear();
    encoder_->run(std::min(budget.encode_ms, std::max(next_deadline_ms() - start_ms, 0.0)), has_cancels_,
                  encode_failures_);
    for (const MediaEncoder::Failure& failure : encode_failures_)
      fail_sequence(*failure.sequence, failure.error);
    if (!drop_encoded_rows()) return false;
    encode_ms_ += scheduler_.now_ms() - start_ms;
    const bool cancelled = end_cancelled();
    const bool timed_out = end_timed_out();
    if (cancelled || timed_out || !encode_failures_.empty()) return false;
    if (budget.is_cut()) return true;
  }
}

// An observer wants to see the tower, and the whole of it.
bool Engine::encode_observed() {
  bool all = true;
  for (const auto& s : running_) {
    if (s->media.empty() || s->n_computed >= s->n_prompt) continue;
    try {
      encode(*s, observer_);
    } catch (...) {
      fail_sequence(*s, std::current_exception());
      all = false;
    }
  }
  return all;
}

// False when a sequence failed, or has to compute again what could not be copied.
bool Engine::take_blocks() {
  bool all = true;
  for (std::size_t i = 0; i < schedule_.preempted.size(); ++i) all &= preempt_youngest();
  for (const ScheduledRows& one : schedule_.rows) {
    Sequence& s = *running_[one.sequence];
    try {
      all &= own_last_page(s);
      reserve_blocks(s, s.n_computed + one.n_rows);
    } catch (...) {
      fail_sequence(s, std::current_exception());
      all = false;
    }
  }
  return all;
}

void Engine::make_batch() {
  in_batch_.clear();
  rows_.clear();
  for (const ScheduledRows& one : schedule_.rows)
    in_batch_.push_back({.sequence = running_[one.sequence].get(),
                         .n_rows = one.n_rows,
                         .last_row = static_cast<std::int32_t>(one.n_rows) - 1});
  for (const InBatch& one : in_batch_) {
    const Sequence& s = *one.sequence;
    if (s.draft && s.draft->n_tokens() > 0) {
      rows_.push_back(speculator_->rows(
          s, std::span(judged_rows_).first(static_cast<std::size_t>(s.draft->n_tokens()) + 1)));
      continue;
    }
    const bool samples = s.n_computed + one.n_rows == s.n_tokens();
    rows_.push_back(s.rows(one.n_rows, model_.info().n_position_axes,
                           samples ? std::span(&one.last_row, 1) : std::span<const std::int32_t>()));
  }
}

// Rows of the batch that just ran, of so many sequences from `first` on; before any of them moves.
void Engine::count_rows(std::size_t n_sequences, std::size_t first) {
  std::int64_t n_prompt_rows = 0;
  for (const InBatch& one : std::span(in_batch_).subspan(first, n_sequences))
    n_prompt_rows +=
        std::clamp<std::int64_t>(one.sequence->n_prompt - one.sequence->n_computed, 0, one.n_rows);
  monitor_.forwarded(static_cast<std::int64_t>(n_sequences), n_prompt_rows, runner_->token_rows());
}

// The sequence's rows are in the cache; `logits` [n, V] of those whose logits it wanted, if any. What was
// drafted behind them counts when it is accepted.
void Engine::advance(std::size_t in_batch, const TensorView& logits, double ms) {
  Sequence& s = *in_batch_[in_batch].sequence;
  s.n_computed += in_batch_[in_batch].n_rows - (s.draft ? s.draft->n_tokens() : 0);
  scheduler_.progress(s.ticket, s.n_computed);
  (s.n_computed > s.n_prompt ? s.result.timings.decode_ms : s.result.timings.prefill_ms) += ms;
  try {
    if (s.keep) {
      s.keep->end_step();
      drop_cached_tokens(s);
    }
    publish_pages(s);
    if (rows_[in_batch].logit_rows.empty()) return;
    if (!s.siblings.empty()) fork(s, {logits.row(0).cf32(), static_cast<std::size_t>(logits.row(0).numel())});
    accept_rows(s, logits);
  } catch (...) {
    fail_sequence(s, std::current_exception());
  }
}

// The step threw, and no sequence has moved. Those that throw alone end with their error, and false is
// returned: the others are to be scheduled without them. Where none does, the step was more than fits
// (memory): each sequence goes by itself.
bool Engine::run_apart() {
  bool all = true;
  for (std::size_t i = 0; i < rows_.size(); ++i) try {
      runner_->forward({&rows_[i], 1}, observer_);
    } catch (...) {
      fail_sequence(*in_batch_[i].sequence, std::current_exception());
      all = false;
    }
  if (!all) return false;
  for (std::size_t i = 0; i < rows_.size(); ++i) try {
      const Clock::time_point start = Clock::now();
      const TensorView logits = runner_->forward({&rows_[i], 1}, observer_, listener_for(i, 1));
      count_rows(1, i);
      advance(i, logits, ms_since(start));
    } catch (...) {
      fail_sequence(*in_batch_[i].sequence, std::current_exception());
    }
  return true;
}

void Engine::note_step(double ms) {
  StepMeasurement step{.ms = ms};
  for (const InBatch& one : in_batch_)
    (one.sequence->n_tokens() - one.sequence->n_computed == 1 ? step.n_decode_rows : step.n_prefill_rows) +=
        one.n_rows;
  scheduler_.note_step(step);
}

// False: a sequence failed before the others moved, and they are to be scheduled again, as they would have
// been without it.
bool Engine::run_step() {
  if (!encode_running()) return false;
  make_schedule();
  if (schedule_.rows.empty()) return true;
  if (!take_blocks()) return false;
  propose_drafts();
  make_batch();
  const bool any_prefill = std::any_of(in_batch_.begin(), in_batch_.end(), [](const InBatch& one) {
    return one.sequence->n_computed < one.sequence->n_prompt;
  });
  const Clock::time_point start = Clock::now();
  const ProfileZone zone(any_prefill ? "prefill" : "decode");
  TensorView logits;
  try {
    logits = runner_->forward(rows_, observer_, listener_for(0, rows_.size()));
  } catch (...) {
    if (rows_.size() > 1) return run_apart();
    fail_sequence(*in_batch_[0].sequence, std::current_exception());
    return false;
  }
  const double ms = ms_since(start);
  note_step(ms);
  count_rows(in_batch_.size());
  note_step_cost(ms);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < in_batch_.size(); ++i) {
    const auto n = static_cast<std::int64_t>(rows_[i].logit_rows.size());
    advance(i, n == 0 ? TensorView() : logits.rows(row, row + n), ms);
    row += n;
  }
  return true;
}

// The callback of submit, with what it has not seen. One that throws, or wants no more, is its own request's
// affair.
void Engine::call_back(std::size_t output) {
  if (output_sequences_[output] == nullptr) return;
  Sequence& s = *output_sequences_[output];
  const std::vector<TokenEvent>& events = outputs_[output].events;
  if (!s.on_token) return;
  while (n_called_back_[output] < events.size()) try {
      if (s.on_token(events[n_called_back_[output]++])) continue;
      n_called_back_[output] = events.size();
      if (!s.finished()) finish(s, FinishReason::kCancelled);
      if (s.group) mark_cancelled(s.id);
    } catch (...) {
      n_called_back_[output] = events.size();
      fail_sequence(s, std::current_exception());
    }
}

std::span<const StepOutput> Engine::step() {
  const FlushDenormals no_denormals;
  if (outputs_given_) n_outputs_ = 0;
  outputs_given_ = false;
  encode_ms_ = 0;
  monitor_.begin_step();
  place_forked();  // of a step that threw
  make_room_for_outputs();
  end_cancelled();
  end_timed_out();
  do {
    collect_finished();
    admit();
  } while (!run_step());
  place_forked();
  for (std::size_t i = 0; i < n_outputs_; ++i) call_back(i);
  collect_finished();
  monitor_.end_step({.n_running = static_cast<std::int64_t>(running_.size()),
                     .n_waiting = static_cast<std::int64_t>(waiting_.size()),
                     .n_used_blocks = pool_->n_blocks() - pool_->n_free(),
                     .n_blocks = pool_->n_blocks(),
                     .vision_cache_bytes = vision_embeddings_.size_bytes()});
  outputs_given_ = true;
  return std::span(outputs_).first(n_outputs_);
}

TensorView Engine::encode_media(std::span<const MediaItem> media, ExecObserver* observer) {
  const FlushDenormals no_denormals;
  const ProfileZone zone("vision");
  return runner_->encode_media(media, observer);
}

}  // namespace triptych
