#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/allocation_trace.h"
#include "base/error.h"
#include "base/flush_denormals.h"
#include "base/profile.h"
#include "engine/answer_text.h"
#include "engine/stop_strings.h"

namespace triptych {
namespace {

constexpr int kPageTokens = 64;

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::int64_t pages_for(std::int64_t n_tokens) { return (n_tokens + kPageTokens - 1) / kPageTokens; }

std::uint64_t fresh_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace

std::string_view to_string(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

/// Free pages of the key/value cache.
class Engine::Pages {
 public:
  Pages(int n, KvCache& cache) : cache_(cache) {
    for (int i = n; i-- > 0;) free_.push_back(i);
  }
  std::size_t n_free() const noexcept { return free_.size(); }
  /// n of the free pages, the one given back last first.
  void take(std::size_t n, std::vector<std::int32_t>& to) {
    const auto first = free_.end() - static_cast<std::ptrdiff_t>(n);
    to.insert(to.end(), first, free_.end());
    free_.erase(first, free_.end());
  }
  void give_back(std::span<const std::int32_t> pages) {
    cache_.release_pages(pages);
    free_.insert(free_.end(), pages.begin(), pages.end());
  }

 private:
  std::vector<std::int32_t> free_;
  KvCache& cache_;
};

struct Engine::Sequence {
  RequestId id = 0;
  PreparedRequest request;
  TokenCallback on_token;
  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<AnswerText> text;
  std::vector<MediaPlan> plans;
  StopStrings stops;
  bool cancelled = false;

  std::int64_t n_prompt = 0;
  std::int64_t max_tokens = 0;  // of the answer
  std::int64_t n_done = 0;      // tokens in the cache
  std::int32_t next_id = 0;     // to be fed next, once the prompt is in
  std::int32_t next_position = 0;
  std::vector<std::int32_t> pages;
  Tensor media_rows;                          // [n image tokens, D]
  std::vector<std::int64_t> media_first_row;  // per item
  bool media_encoded = false;
  GenerationResult result;

  bool prefilled() const noexcept { return n_done >= n_prompt; }
  /// Some of the item's rows are still to be fed.
  bool needs_media(int index) const noexcept {
    for (const MediaRun& run : request.layout.runs)
      if (run.media_index == index && run.first_prompt_row + run.n_rows > n_done) return true;
    return false;
  }
};

Engine::Engine(LoadedModel& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      arena_(std::size_t{1} << 20, [&model](std::size_t n) { return model.backend().allocate(n); }),
      step_plans_(model.backend(), arena_),
      visual_cache_(options.visual_cache_bytes) {
  const ModelInfo& info = model.info();
  if (options_.max_context_tokens < 0 || options_.kv_cache_tokens < 0 || options_.max_batch_tokens < 1 ||
      options_.max_sequences < 1 || options_.max_kept_sequences < 0)
    fail(ErrorCode::kInvalidArgument, "engine: sizes must be positive");
  if (options_.max_context_tokens == 0) options_.max_context_tokens = info.max_context_tokens;
  if (options_.max_context_tokens > info.max_context_tokens)
    fail(ErrorCode::kInvalidArgument, "context of {} tokens: the model was trained for {}",
         options_.max_context_tokens, info.max_context_tokens);
  options_.kv_cache_tokens = std::max(options_.kv_cache_tokens, options_.max_context_tokens);
  const std::int64_t n_pages = pages_for(options_.kv_cache_tokens);
  if (n_pages > (std::int64_t{1} << 24))
    fail(ErrorCode::kInvalidArgument, "a key/value cache of {} tokens is too large",
         options_.kv_cache_tokens);
  kv_cache_ = model.backend().make_kv_cache({.n_layers = info.n_layers,
                                             .n_kv_heads = info.n_kv_heads,
                                             .head_dim = info.head_dim,
                                             .page_tokens = kPageTokens,
                                             .n_pages = static_cast<int>(n_pages),
                                             .dtype = options_.kv_cache_dtype});
  pages_ = std::make_unique<Pages>(static_cast<int>(n_pages), *kv_cache_);
  // Recorded steps read these where they lie; should one have to grow, they are recorded anew.
  constexpr std::size_t kRows = 1024;
  for (auto* buffer : {&ids_, &slots_, &logit_rows_}) buffer->reserve(kRows);
  positions_.reserve(kRows * static_cast<std::size_t>(info.n_position_axes));
  kv_sequences_.reserve(std::min(kRows, static_cast<std::size_t>(options_.max_sequences)));
  if (model.checks_numerics()) numerics_.emplace();
}

Engine::~Engine() = default;

std::int64_t Engine::max_context_tokens() const noexcept { return options_.max_context_tokens; }
std::size_t Engine::kv_cache_bytes() const noexcept { return kv_cache_->bytes(); }
std::int64_t Engine::n_arena_allocations() const noexcept { return arena_.n_chunk_allocations(); }

Engine::RequestId Engine::submit(PreparedRequest request, const SamplingParams& params,
                                 TokenCallback on_token) {
  params.validate(model_.info().vocab_size);
  const auto n_prompt = static_cast<std::int64_t>(request.layout.input_ids.size());
  if (n_prompt == 0) fail(ErrorCode::kInvalidArgument, "the prompt is empty: it has no token");
  if (n_prompt + 1 > options_.max_context_tokens)
    fail(ErrorCode::kContextLength, "the prompt has {} tokens and the context holds {}, the answer included",
         n_prompt, options_.max_context_tokens);
  auto s = std::make_unique<Sequence>();
  s->id = next_id_++;
  s->n_prompt = n_prompt;
  const std::int64_t room = options_.max_context_tokens - n_prompt;
  s->max_tokens = params.max_tokens > 0 ? std::min(params.max_tokens, room) : room;
  s->sampler = std::make_unique<Sampler>(params, params.seed.value_or(fresh_seed()), model_.n_usable_ids(),
                                         model_.info().never_sample);
  s->sampler->observe_prompt(request.layout.input_ids);
  for (const MediaItem& item : request.media) s->plans.push_back(item.plan);
  if (model_.has_tokenizer()) s->text = std::make_unique<AnswerText>(model_, s->plans);
  s->stops = StopStrings(params.stop);
  s->on_token = std::move(on_token);
  s->next_position = request.layout.next_position;
  s->result.n_prompt_tokens = n_prompt;
  for (const MediaItem& item : request.media) s->result.n_image_tokens += item.plan.n_tokens;
  s->request = std::move(request);
  waiting_.push_back(std::move(s));
  return waiting_.back()->id;
}

void Engine::cancel(RequestId id) {
  for (auto& s : waiting_)
    if (s->id == id) s->cancelled = true;
  for (auto& s : running_)
    if (s->id == id) s->cancelled = true;
}

std::optional<GenerationResult> Engine::take_result(RequestId id) {
  for (auto it = finished_.begin(); it != finished_.end(); ++it)
    if ((*it)->id == id) {
      GenerationResult out = std::move((*it)->result);
      finished_.erase(it);
      return out;
    }
  return std::nullopt;
}

// Waiting requests start in order, as long as a place and pages for their whole possible length are free: a
// sequence that runs never has to wait for memory.
void Engine::admit() {
  while (!waiting_.empty()) {
    Sequence& s = *waiting_.front();
    if (s.cancelled) {
      s.result.finish_reason = FinishReason::kCancelled;
      pages_->give_back(s.pages);  // of a prefix it took
      s.pages.clear();
      finished_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      continue;
    }
    if (static_cast<int>(running_.size()) >= options_.max_sequences) return;
    if (s.pages.empty()) take_prefix(s);
    if (!find_pages(s, static_cast<std::size_t>(pages_for(s.n_prompt + s.max_tokens)))) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// The pages of the kept sequence that begins most like this one. At least one token is left to do: its logits
// are wanted.
void Engine::take_prefix(Sequence& s) {
  const ModelInfo& info = model_.info();
  if (s.n_prompt > info.max_shareable_tokens) return;
  auto best = kept_.end();
  std::int64_t n_best = 0;
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    if (it->n_prompt > info.max_shareable_tokens) continue;
    const std::int64_t n = it->n_common(s.request.layout, s.request.media, info.n_position_axes);
    if (n <= n_best) continue;
    best = it;
    n_best = n;
  }
  n_best = std::min(n_best, s.n_prompt - 1);
  if (best == kept_.end() || n_best <= 0) return;
  s.pages = std::move(best->pages);
  const auto n_pages = static_cast<std::ptrdiff_t>(pages_for(n_best));
  pages_->give_back(std::span(s.pages).subspan(static_cast<std::size_t>(n_pages)));
  s.pages.resize(static_cast<std::size_t>(n_pages));
  s.n_done = s.result.n_reused_tokens = n_best;
  kept_.erase(best);
}

// Brings the sequence to n pages, at the cost of kept sequences, the oldest first. False: it has to wait.
bool Engine::find_pages(Sequence& s, std::size_t n) {
  const std::size_t more = n > s.pages.size() ? n - s.pages.size() : 0;
  while (pages_->n_free() < more && !kept_.empty()) {
    pages_->give_back(kept_.back().pages);
    kept_.pop_back();
  }
  if (pages_->n_free() < more) return false;
  pages_->take(more, s.pages);
  return true;
}

// Notes what the sequence has in the cache and takes over the pages of it; the others are left to it.
void Engine::keep(Sequence& s) {
  if (options_.max_kept_sequences == 0 || s.n_done == 0) return;
  KeptSequence out;
  const PromptLayout& layout = s.request.layout;
  const std::int64_t from_prompt = std::min(s.n_done, s.n_prompt);
  out.n_prompt = s.n_prompt;
  out.ids.assign(layout.input_ids.begin(), layout.input_ids.begin() + from_prompt);
  out.ids.insert(out.ids.end(), s.result.token_ids.begin(),
                 s.result.token_ids.begin() + (s.n_done - from_prompt));
  for (std::int64_t axis = 0; axis < model_.info().n_position_axes; ++axis) {
    const auto begin = layout.positions.begin() + axis * s.n_prompt;
    out.positions.insert(out.positions.end(), begin, begin + from_prompt);
    for (std::int64_t t = from_prompt; t < s.n_done; ++t)
      out.positions.push_back(s.next_position + static_cast<std::int32_t>(t - s.n_prompt));
  }
  out.media = media_of(layout, s.request.media);
  const auto n_pages = static_cast<std::ptrdiff_t>(pages_for(s.n_done));
  out.pages.assign(s.pages.begin(), s.pages.begin() + n_pages);
  s.pages.erase(s.pages.begin(), s.pages.begin() + n_pages);
  kept_.push_front(std::move(out));
  if (kept_.size() <= static_cast<std::size_t>(options_.max_kept_sequences)) return;
  pages_->give_back(kept_.back().pages);
  kept_.pop_back();
}

void Engine::finish(Sequence& s, FinishReason reason) {
  s.result.finish_reason = reason;
  if (model_.info().names_regions && s.text)
    s.result.regions = model_.model().find_regions(model_.tokenizer().decode(s.result.token_ids),
                                                   s.result.token_ids, s.plans);
  if (&s != probe_.get()) keep(s);
  pages_->give_back(s.pages);
  s.pages.clear();
  s.media_rows = Tensor();
  s.request.media.clear();
}

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
                            .addresses = {kv_cache_.get(), ids_.data(), positions_.data(),
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
      if (all_logits) logit_rows_.push_back(static_cast<std::int32_t>(row));
    }
    if (!all_logits && begin + n >= s.n_prompt)
      logit_rows_.push_back(static_cast<std::int32_t>(first_row + n - 1));
    kv_sequences_.push_back({.first_row = static_cast<std::int32_t>(first_row),
                             .n_rows = static_cast<std::int32_t>(n),
                             .n_context = static_cast<std::int32_t>(begin + n),
                             .n_prompt = static_cast<std::int32_t>(s.n_prompt),
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
