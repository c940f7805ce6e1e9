// A step of an engine: pictures, the ragged batch, and the tokens that come of it.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/flush_denormals.h"
#include "base/profile.h"
#include "engine/engine_parts.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

void Engine::encode_sequence(Sequence& s, ExecObserver* observer) {
  if (s.media_encoded) return;
  s.media_encoded = true;
  if (s.request.media.empty()) return;
  const ProfileZone zone("vision");
  const Clock::time_point start = Clock::now();
  arena_.reset();
  ExecContext cx(model_.backend(), arena_, observe(observer, "vision"));
  // Rows that are in the cache of keys and values already are not needed, rows of pictures seen lately not
  // made again. An observer wants to see all of it.
  std::vector<MediaItem> to_encode;
  std::vector<const MediaItem*> places;  // of to_encode, in the request
  std::int64_t n_rows = 0;
  for (std::size_t i = 0; i < s.request.media.size(); ++i) {
    MediaItem& item = s.request.media[i];
    s.media_first_row.push_back(n_rows);
    if (!s.needs_media(static_cast<int>(i))) continue;
    n_rows += item.plan.n_tokens;
    if (observer == nullptr && visual_cache_.find(item) != nullptr) continue;
    to_encode.push_back({item.plan, std::move(item.pixels), item.text_ids, item.fingerprint});
    places.push_back(&item);
  }
  if (n_rows == 0) return;
  s.media_rows = Tensor(DType::kF32, {n_rows, model_.info().hidden_size});
  const auto rows_of = [&](const MediaItem& item) {
    const std::int64_t first = s.media_first_row[static_cast<std::size_t>(&item - s.request.media.data())];
    return s.media_rows.view().rows(first, first + item.plan.n_tokens);
  };
  // Before anything is put in: that may push others out.
  for (std::size_t i = 0; i < s.request.media.size(); ++i)
    if (const MediaItem& item = s.request.media[i];
        s.needs_media(static_cast<int>(i)) && std::find(places.begin(), places.end(), &item) == places.end())
      copy(*visual_cache_.find(item), rows_of(item));
  if (!to_encode.empty()) {
    n_media_encoded_ += static_cast<std::int64_t>(to_encode.size());
    const StepScope step(model_.backend(), {.n_sequences = static_cast<std::int64_t>(to_encode.size())});
    const TensorView rows = model_.model().encode_media(cx, to_encode);
    std::int64_t first = 0;
    for (const MediaItem* item : places) {
      const std::int64_t n = item->plan.n_tokens;
      TRIPTYCH_CHECK(first + n <= rows.dim(0), "the tower gave {} rows, the plans say more", rows.dim(0));
      copy(rows.rows(first, first + n), rows_of(*item));
      if (observer == nullptr) visual_cache_.put(*item, rows_of(*item));
      first += n;
    }
    TRIPTYCH_CHECK(first == rows.dim(0), "the tower gave {} rows, the plans say {}", rows.dim(0), first);
  }
  for (MediaItem& item : s.request.media) item.pixels = Tensor();
  s.result.timings.encode_ms += ms_since(start);
}

// The observer of a run: the check, when there is one, sees everything first.
ExecObserver* Engine::observe(ExecObserver* wanted, std::string_view part) {
  if (!numerics_) return wanted;
  numerics_->restart(wanted, part);
  return &*numerics_;
}

// The model on the step's buffers, or what was recorded of an earlier step like this one.
TensorView Engine::run_forward(bool every_row_decodes, ExecObserver* observer) {
  const Batch batch = {.token_ids = ids_,
                       .positions = positions_,
                       .lengths = lengths_,
                       .sequences = kv_sequences_,
                       .kv_slots = slots_,
                       .kv_cache = kv_cache_.get(),
                       .media = overrides_,
                       .logit_rows = logit_rows_};
  const StepShape shape = {.n_rows = static_cast<std::int64_t>(ids_.size()),
                           .n_sequences = static_cast<std::int64_t>(kv_sequences_.size())};
  const StepScope step(model_.backend(), shape);
  if (options_.replay_steps && every_row_decodes && observer == nullptr && overrides_.empty())
    return step_plans_.run({.shape = shape,
                            .n_logit_rows = static_cast<std::int64_t>(logit_rows_.size()),
                            .addresses = {kv_cache_.get(), ids_.data(), positions_.data(), lengths_.data(),
                                          kv_sequences_.data(), slots_.data(), logit_rows_.data()}},
                           [&](ExecContext& cx) { return model_.model().forward(cx, batch); });
  arena_.reset();
  ExecContext cx(model_.backend(), arena_, observer);
  return model_.model().forward(cx, batch);
}

TensorView Engine::run_batch(std::span<Sequence*> sequences, std::span<const std::int64_t> n_rows,
                             bool all_logits, ExecObserver* observer) {
  const auto n_axes = static_cast<std::size_t>(model_.info().n_position_axes);
  std::size_t n_tokens = 0;
  for (const std::int64_t n : n_rows) n_tokens += static_cast<std::size_t>(n);
  ids_.clear();
  slots_.clear();
  logit_rows_.clear();
  lengths_.clear();
  kv_sequences_.clear();
  overrides_.clear();
  override_rows_.clear();
  override_rows_.reserve(n_tokens);  // views into it must stay valid
  positions_.resize(n_axes * n_tokens);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Sequence& s = *sequences[i];
    const std::int64_t n = n_rows[i];
    const std::int64_t begin = s.n_done;
    const auto first_row = static_cast<std::int64_t>(ids_.size());
    for (std::int64_t t = begin; t < begin + n; ++t) {
      const auto row = ids_.size();
      const bool in_prompt = t < s.n_prompt;
      ids_.push_back(in_prompt ? s.request.layout.input_ids[static_cast<std::size_t>(t)] : s.next_id);
      for (std::size_t a = 0; a < n_axes; ++a)
        positions_[a * n_tokens + row] =
            in_prompt ? s.request.layout
                            .positions[a * static_cast<std::size_t>(s.n_prompt) + static_cast<std::size_t>(t)]
                      : s.next_position + static_cast<std::int32_t>(t - s.n_prompt);
      slots_.push_back(s.pages[static_cast<std::size_t>(t / kPageTokens)] * kPageTokens +
                       static_cast<std::int32_t>(t % kPageTokens));
      lengths_.push_back(
          {.n_tokens = static_cast<std::int32_t>(t) + 1, .n_prompt = static_cast<std::int32_t>(s.n_prompt)});
      if (all_logits) logit_rows_.push_back(static_cast<std::int32_t>(row));
    }
    if (!all_logits && begin + n >= s.n_prompt)
      logit_rows_.push_back(static_cast<std::int32_t>(first_row + n - 1));
    kv_sequences_.push_back({.first_row = static_cast<std::int32_t>(first_row),
                             .n_rows = static_cast<std::int32_t>(n),
                             .n_context = static_cast<std::int32_t>(begin + n),
                             .pages = s.pages});
    for (const MediaRun& run : s.request.layout.runs) {
      const std::int64_t from = std::max(run.first_prompt_row, begin);
      const std::int64_t to = std::min(run.first_prompt_row + run.n_rows, begin + n);
      if (from >= to) continue;
      const std::int64_t media_row = s.media_first_row[static_cast<std::size_t>(run.media_index)] +
                                     run.first_media_row + (from - run.first_prompt_row);
      const std::size_t at = override_rows_.size();
      for (std::int64_t t = from; t < to; ++t)
        override_rows_.push_back(static_cast<std::int32_t>(first_row + t - begin));
      overrides_.push_back({.rows = s.media_rows.view().rows(media_row, media_row + (to - from)),
                            .at_rows = std::span<const std::int32_t>(override_rows_).subspan(at)});
    }
  }
  const TensorView logits = run_forward(n_tokens == sequences.size(), observe(observer, "language"));
  if (numerics_) numerics_->check("logits", logits);
  for (std::size_t i = 0; i < sequences.size(); ++i) sequences[i]->n_done += n_rows[i];
  return logits;
}

void Engine::accept_token(Sequence& s, std::span<const float> logits) {
  const SamplingParams& params = s.sampler->params();
  TokenEvent event;
  event.token = s.sampler->sample(logits);
  const std::int32_t id = event.token.id;
  const auto& own = model_.stop_token_ids();
  const bool is_eos = !params.ignore_eos && std::find(own.begin(), own.end(), id) != own.end();
  const bool is_stop = std::find(params.stop_token_ids.begin(), params.stop_token_ids.end(), id) !=
                       params.stop_token_ids.end();
  const bool ends = is_eos || is_stop;
  if (!ends) {
    s.result.token_ids.push_back(id);
    if (params.n_logprobs >= 0) s.result.tokens.push_back(event.token);
    if (s.text) event.text = s.stops.push(s.text->push(id));
  }
  const bool full = static_cast<std::int64_t>(s.result.token_ids.size()) >= s.max_tokens;
  const bool by_string = s.stops.found();
  if ((ends || full) && !by_string && s.text) {
    event.text += s.stops.push(s.text->finish());
    if (!s.stops.found()) event.text += s.stops.finish();
  }
  s.result.text += event.text;
  s.next_id = id;
  const bool wanted = !s.on_token || (ends && event.text.empty()) || s.on_token(event);
  if (s.stops.found()) {
    s.result.stop_string = s.stops.which();
    finish(s, FinishReason::kStop);
  } else if (ends) {
    finish(s, FinishReason::kStop);
  } else if (!wanted) {
    finish(s, FinishReason::kCancelled);
  } else if (full) {
    finish(s, FinishReason::kLength);
  }
}

bool Engine::step() {
  const FlushDenormals no_denormals;
  admit();
  for (auto& s : running_)
    if (s->cancelled) finish(*s, FinishReason::kCancelled);
  // Decoding sequences first, then as much of the prompts as the step holds.
  batch_.clear();
  batch_rows_.clear();
  std::int64_t budget = options_.max_batch_tokens;
  bool any_prefill = false;
  for (auto& s : running_)
    if (!s->pages.empty() && s->prefilled()) {
      batch_.push_back(s.get());
      batch_rows_.push_back(1);
      --budget;
    }
  for (auto& s : running_)
    if (!s->pages.empty() && !s->prefilled() && budget > 0) {
      if (!s->media_encoded) encode_sequence(*s, observer_);
      const std::int64_t n = std::min(budget, s->n_prompt - s->n_done);
      batch_.push_back(s.get());
      batch_rows_.push_back(n);
      budget -= n;
      any_prefill = true;
    }
  if (!batch_.empty()) {
    const Clock::time_point start = Clock::now();
    const ProfileZone zone(any_prefill ? "prefill" : "decode");
    const TensorView logits = run_batch(batch_, batch_rows_, false, observer_);
    const double ms = ms_since(start);
    std::int64_t row = 0;
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      Sequence& s = *batch_[i];
      const bool was_decode = s.n_done > s.n_prompt;
      (was_decode ? s.result.timings.decode_ms : s.result.timings.prefill_ms) += ms;
      if (!s.prefilled()) continue;
      const TensorView own = logits.row(row++);
      accept_token(s, {own.cf32(), static_cast<std::size_t>(own.numel())});
    }
  }
  for (std::size_t i = 0; i < running_.size();) {
    if (running_[i]->pages.empty()) {
      finished_.push_back(std::move(running_[i]));
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return !running_.empty() || !waiting_.empty();
}

GenerationResult Engine::generate(PreparedRequest request, const SamplingParams& params,
                                  TokenCallback on_token) {
  const RequestId id = submit(std::move(request), params, std::move(on_token));
  for (;;) {
    const bool more = step();
    if (auto result = take_result(id)) return std::move(*result);
    TRIPTYCH_CHECK(more, "a request vanished");
  }
}

TensorView Engine::encode_media(std::span<const MediaItem> media, ExecObserver* observer) {
  const FlushDenormals no_denormals;
  const ProfileZone zone("vision");
  arena_.reset();
  ExecContext cx(model_.backend(), arena_, observe(observer, "vision"));
  const StepScope step(model_.backend(), {.n_sequences = static_cast<std::int64_t>(media.size())});
  return model_.model().encode_media(cx, media);
}

TensorView Engine::forward_prompt(const PreparedRequest& request, ExecObserver* observer) {
  const FlushDenormals no_denormals;
  if (probe_) finish(*probe_, FinishReason::kCancelled);
  probe_ = std::make_unique<Sequence>();
  Sequence& s = *probe_;
  s.n_prompt = static_cast<std::int64_t>(request.layout.input_ids.size());
  if (s.n_prompt == 0) fail(ErrorCode::kInvalidArgument, "the prompt is empty: it has no token");
  if (s.n_prompt > options_.max_context_tokens)
    fail(ErrorCode::kContextLength, "the prompt has {} tokens and the context holds {}", s.n_prompt,
         options_.max_context_tokens);
  s.next_position = request.layout.next_position;
  s.request.layout = request.layout;
  for (const MediaItem& item : request.media) {
    MediaItem copy;
    copy.plan = item.plan;
    copy.pixels = Tensor::copy_of(item.pixels);
    copy.text_ids = item.text_ids;
    copy.fingerprint = item.fingerprint;
    s.request.media.push_back(std::move(copy));
  }
  const auto need = static_cast<std::size_t>(pages_for(options_.max_context_tokens));
  TRIPTYCH_CHECK(find_pages(s, need), "forward_prompt needs an idle engine");
  encode_sequence(s, observer);
  Sequence* one[] = {&s};
  const std::int64_t rows[] = {s.n_prompt};
  return run_batch(one, rows, true, observer);
}

TensorView Engine::forward_next(std::int32_t id, ExecObserver* observer) {
  const FlushDenormals no_denormals;
  TRIPTYCH_CHECK(probe_ != nullptr, "forward_next before forward_prompt");
  Sequence& s = *probe_;
  if (s.n_done + 1 > options_.max_context_tokens)
    fail(ErrorCode::kContextLength, "the context of {} tokens is full", options_.max_context_tokens);
  s.next_id = id;
  Sequence* one[] = {&s};
  const std::int64_t rows[] = {1};
  return run_batch(one, rows, false, observer);
}

}  // namespace triptych
