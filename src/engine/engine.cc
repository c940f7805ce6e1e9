// Requests of an engine: how they come, start, give way and end. Steps are in engine_step.cc.
#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <new>
#include <numeric>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/make_room.h"
#include "engine/sequence.h"

namespace triptych {
namespace {

std::uint64_t fresh_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

// Where there is no memory even for the message, that is the message.
RequestError describe(const std::exception_ptr& error) noexcept try {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return {e.code(), e.what()};
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kOutOfMemory, "no memory"};
  } catch (const std::exception& e) {
    return {ErrorCode::kInternal, e.what()};
  } catch (...) {
    return {ErrorCode::kInternal, "an exception of unknown type"};
  }
} catch (...) {
  return {ErrorCode::kOutOfMemory, "no memory"};
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
    case FinishReason::kTimeout:
      return "timeout";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

Engine::Engine(LoadedModel& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      vision_embeddings_(model.backend(), options.vision_embedding_cache_bytes, options.vision_cache),
      scheduler_({.max_batch_tokens = options.max_batch_tokens,
                  .max_sequences = options.max_sequences,
                  .max_step_ms = options.max_step_ms,
                  .aging_ms = options.priority_aging_ms},
                 options.clock_ms ? options.clock_ms : steady_clock_ms()),
      monitor_(options.metrics) {
  const ModelInfo& info = model.info();
  if (options_.max_context_tokens < 0 || options_.kv_cache_tokens < 0 || options_.max_batch_tokens < 1 ||
      options_.max_sequences < 1 || options_.max_batch_patches < 1)
    fail(ErrorCode::kInvalidArgument, "engine: sizes must be positive");
  if (!(options_.max_step_ms >= 0) || !(options_.priority_aging_ms > 0))
    fail(ErrorCode::kInvalidArgument,
         "engine: expected max_step_ms of 0 or more and priority_aging_ms above 0, got {} and {}",
         options_.max_step_ms, options_.priority_aging_ms);
  for (const auto& [tenant, weight] : options_.tenant_weights) scheduler_.shares().set_weight(tenant, weight);
  if (options_.max_context_tokens == 0) options_.max_context_tokens = info.max_context_tokens;
  if (options_.max_context_tokens > info.max_context_tokens)
    fail(ErrorCode::kInvalidArgument, "context of {} tokens: the model was trained for {}",
         options_.max_context_tokens, info.max_context_tokens);
  options_.kv_cache_tokens = std::max(options_.kv_cache_tokens, options_.max_context_tokens);
  if (options_.kv_cache_tokens > (std::int64_t{1} << 24) * kBlockTokens)
    fail(ErrorCode::kInvalidArgument, "a key/value cache of {} tokens is too large",
         options_.kv_cache_tokens);
  std::int64_t n_blocks = blocks_for(options_.kv_cache_tokens);
  if (options_.memory_limit_bytes > 0) {
    memory_ = MemoryBudget(options_.memory_limit_bytes, model.model(), model.backend(),
                           {.n_step_rows = options_.max_batch_tokens,
                            .n_sequences = options_.max_sequences,
                            .n_pass_patches = options_.max_batch_patches,
                            .kv_dtype = options_.kv_cache_dtype.value_or(model.auto_kv_dtype())});
    n_blocks = std::min(n_blocks, memory_.n_blocks());
    options_.max_context_tokens = std::min(options_.max_context_tokens, n_blocks * kBlockTokens);
  }
  runner_ = std::make_unique<ModelRunner>(
      model.model(), model.backend(),
      ModelRunnerOptions{.n_blocks = static_cast<int>(n_blocks),
                         .kv_dtype = options_.kv_cache_dtype.value_or(model.auto_kv_dtype()),
                         .max_sequences = options_.max_sequences,
                         .replay_steps = options_.replay_steps,
                         .check_numerics = model.checks_numerics()});
  pool_ = std::make_unique<BlockPool>(runner_->kv_cache());
  if (options_.speculation.method != SpeculationMethod::kNone) {
    speculator_ = std::make_unique<Speculator>(options_.speculation, model, *runner_);
    judged_rows_.resize(static_cast<std::size_t>(options_.speculation.num_speculative_tokens) + 1);
    std::iota(judged_rows_.begin(), judged_rows_.end(), 0);
  }
  prefix_cache_ = std::make_unique<PrefixCache>(*pool_, options_.prefix_cache_bytes,
                                                runner_->kv_cache().page_bytes(), info.max_shareable_tokens);
  if (prefix_cache_->enabled()) prefix_model_ = model.fingerprint();
  encoder_ = std::make_unique<MediaEncoder>(
      model.backend(), *runner_, vision_embeddings_, options_.max_batch_patches,
      [this] { return scheduler_.now_ms(); }, monitor_,
      [&model](MediaItem& item) {
        item.pixels = model.model().preprocess(*item.frames, item.plan, &model.media_pool());
      });
}

Engine::~Engine() = default;

RequestId Engine::submit(PreparedRequest request, const SamplingParams& params, TokenCallback on_token) {
  params.validate(model_.info().vocab_size);
  memory_.check(static_cast<std::int64_t>(request.layout.input_ids.size()), request.media);
  const QueueOptions& queue = request.queue;
  if (!(queue.timeout_ms >= 0))
    fail(ErrorCode::kInvalidArgument, "timeout_ms: expected 0 or more, got {}", queue.timeout_ms);
  const std::uint64_t seed = params.seed.value_or(fresh_seed());
  std::unique_ptr<Sequence> s = make_sequence(request, params, seed, 0);
  if (params.n_sequences() > 1) add_siblings(*s, request, params, seed);
  s->media = std::move(request.media);
  s->on_token = std::move(on_token);
  s->keep = ImageTokenKeep::make(*s, model_.info().n_position_axes);
  if (s->keep) drop_known_rows(*s);
  if (queue.timeout_ms > 0) s->deadline_ms = scheduler_.now_ms() + queue.timeout_ms;
  s->id = next_id_;
  for (auto& sibling : s->siblings) {
    sibling->id = s->id;
    sibling->on_token = s->on_token;
    sibling->deadline_ms = s->deadline_ms;
  }
  waiting_.push_back(std::move(s));
  Sequence& queued = *waiting_.back();
  try {
    queued.ticket = scheduler_.enter(queued.id, queue.priority, queue.tenant);
  } catch (...) {
    waiting_.pop_back();
    throw;
  }
  return next_id_++;
}

void Engine::cancel(RequestId id) {
  const std::lock_guard lock(cancel_mutex_);
  cancels_.push_back(id);
  has_cancels_.store(true, std::memory_order_relaxed);
}

void Engine::mark_cancelled(RequestId id) noexcept {
  for (const auto* list : {&waiting_, &running_, &forked_})
    for (const auto& s : *list)
      if (s->id == id) s->cancelled = true;
}

void Engine::take_cancels() {
  if (!has_cancels_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(cancel_mutex_);
  for (const auto* list : {&waiting_, &running_, &forked_})
    for (const auto& s : *list)
      if (std::find(cancels_.begin(), cancels_.end(), s->id) != cancels_.end()) s->cancelled = true;
  cancels_.clear();
  has_cancels_.store(false, std::memory_order_relaxed);
}

// All sequences of its request have ended.
bool Engine::has_ended(const Sequence& s) const { return s.finished() && (!s.group || s.group->n_open == 0); }

std::optional<GenerationResult> Engine::take_result(RequestId id) {
  std::vector<Sequence*> own;
  for (const auto& s : finished_)
    if (s->id == id) own.push_back(s.get());
  if (own.empty() || !has_ended(*own.front())) return std::nullopt;
  std::sort(own.begin(), own.end(),
            [](const Sequence* a, const Sequence* b) { return a->choice < b->choice; });
  const int n = own.front()->group ? own.front()->group->n : 1;
  std::vector<GenerationResult> results;
  results.reserve(own.size());
  for (Sequence* s : own) {
    forget_output(*s);
    results.push_back(std::move(s->result));
  }
  std::erase_if(finished_, [id](const auto& s) { return s->id == id; });
  return combine_choices(std::move(results), n);
}

GenerationResult Engine::generate(PreparedRequest request, const SamplingParams& params,
                                  TokenCallback on_token) {
  const RequestId id = submit(std::move(request), params, std::move(on_token));
  const auto is_this = [this, id](const auto& s) { return s->id == id && has_ended(*s); };
  try {
    while (std::none_of(finished_.begin(), finished_.end(), is_this)) {
      TRIPTYCH_CHECK(has_work(), "a request vanished");
      step();
    }
    for (const auto& s : finished_)
      if (is_this(s) && s->failure) std::rethrow_exception(s->failure);
  } catch (...) {
    drop(id);
    throw;
  }
  return std::move(*take_result(id));
}

// Forgets a request wherever it is.
void Engine::drop(RequestId id) {
  const auto is_this = [this, id](const std::unique_ptr<Sequence>& s) {
    if (s->id != id) return false;
    if (!s->finished()) {
      encoder_->forget(*s);
      scheduler_.leave(s->ticket, s->n_tokens());
    }
    pool_->release(s->blocks);
    forget_output(*s);
    return true;
  };
  std::erase_if(waiting_, is_this);
  std::erase_if(running_, is_this);
  std::erase_if(finished_, is_this);
}

SequenceState Engine::state_of(const Sequence& s) const {
  return {.n_tokens = s.keep ? s.keep->n_schedulable(s) : s.n_tokens(),
          .n_computed = s.n_computed,
          .n_blocks = static_cast<std::int64_t>(s.blocks.size()) - (must_copy_page(s) ? 1 : 0),
          .n_owned_blocks = std::count_if(s.blocks.begin(), s.blocks.end(),
                                          [&](std::int32_t b) { return pool_->n_users(b) == 1; }),
          .n_ready = s.n_ready()};
}

void Engine::note_states() {
  states_.clear();
  for (const auto& s : running_) states_.push_back(state_of(*s));
}

// Whether any was.
bool Engine::end_cancelled() {
  take_cancels();
  bool any = false;
  for (auto* list : {&running_, &waiting_})
    for (auto& s : *list) {
      if (!s->cancelled || s->finished()) continue;
      finish(*s, FinishReason::kCancelled);
      any = true;
    }
  return any;
}

bool Engine::end_timed_out() {
  const double now_ms = scheduler_.now_ms();
  bool any = false;
  for (auto* list : {&running_, &waiting_})
    for (auto& s : *list) {
      if (s->deadline_ms > now_ms || s->finished()) continue;
      finish(*s, FinishReason::kTimeout);
      any = true;
    }
  return any;
}

double Engine::next_deadline_ms() const {
  double out = std::numeric_limits<double>::infinity();
  for (const auto* list : {&running_, &waiting_})
    for (const auto& s : *list) out = std::min(out, s->deadline_ms);
  return out;
}

std::size_t Engine::next_waiting() {
  tickets_.clear();
  for (const auto& s : waiting_) tickets_.push_back(&s->ticket);
  return scheduler_.next(tickets_);
}

// Waiting requests start in the scheduler's order, as soon as there is room for what is known of them.
void Engine::admit() {
  while (!waiting_.empty()) {
    const auto next = waiting_.begin() + static_cast<std::ptrdiff_t>(next_waiting());
    if (!find_room(**next)) return;
    const auto place = std::upper_bound(
        running_.begin(), running_.end(), *next,
        [&](const auto& a, const auto& b) { return scheduler_.precedes(a->ticket, b->ticket); });
    Sequence& s = **running_.insert(place, std::move(*next));
    waiting_.erase(next);
    try {
      start(s);
    } catch (...) {
      fail_sequence(s, std::current_exception());
      collect_finished();
    }
  }
}

// Pages that only the prefix cache holds are as good as free, but for those that the request begins with:
// these stay while others run that will give back blocks.
bool Engine::find_room(Sequence& s) {
  if (static_cast<int>(running_.size()) >= options_.max_sequences) return false;
  note_states();
  for (;;) {
    SequenceState next = state_of(s);
    if (s.keep) next.n_tokens = std::max(next.n_tokens, s.keep->n_at_most(s));
    PrefixCache::Match found;
    if (!prefix_cache_->empty()) found = prefix_cache_->find(s.prefix, s.prefix_tokens());
    next.n_blocks = found.n_tokens / kBlockTokens;
    const std::int64_t n_kept = found.n_idle_whole + (found.idle_part && !running_.empty() ? 1 : 0);
    // The pictures of one that gave way are still there. Where nobody runs those of others do not count: one
    // has to go on.
    const std::int64_t n_more = s.ticket.started ? 0 : s.n_picture_blocks;
    const std::int64_t n_available =
        n_available_blocks(running_.empty() ? s.n_picture_blocks : n_held_by_pictures() + n_more);
    if (scheduler_.admits(states_, next, n_available - n_kept)) return true;
    if (!probe_) return false;
    release_probe();
  }
}

void Engine::start(Sequence& s) {
  s.status = SequenceStatus::kRunning;
  scheduler_.start(s.ticket, s.n_prompt, s.max_tokens);
  if (prefix_cache_->empty()) return monitor_.started(s, prefix_cache_->enabled());
  PrefixCache::Match found = prefix_cache_->take(s.prefix, s.prefix_tokens());
  s.blocks = std::move(found.blocks);
  s.n_computed = found.n_tokens;
  s.n_published = static_cast<std::size_t>(found.n_tokens / kBlockTokens);
  if (s.n_tokens() == s.n_prompt) s.result.n_reused_tokens = found.n_tokens;
  monitor_.started(s, true);
}

// It keeps its tokens, its draws and its encoded media; keys and values are computed again.
void Engine::give_way(Sequence& s) {
  pool_->release(s.blocks);
  s.blocks.clear();
  s.n_computed = 0;
  s.n_published = 0;
  if (s.keep) {
    s.keep->restore(s);
    rename_pages(s, 0);
  }
  s.status = SequenceStatus::kWaiting;
  monitor_.preempted();
}

// False: it failed instead.
bool Engine::preempt_youngest() {
  make_room(waiting_, 1);
  std::unique_ptr<Sequence> s = std::move(running_.back());
  running_.pop_back();
  bool waits = true;
  try {
    give_way(*s);
  } catch (...) {
    fail_sequence(*s, std::current_exception());
    waits = false;
  }
  waiting_.push_back(std::move(s));
  return waits;
}

// So that a sequence that ends needs none for that.
void Engine::make_room_for_outputs() {
  std::size_t n = n_outputs_ + forked_.size();
  for (const auto* list : {&waiting_, &running_})
    for (const auto& s : *list) n += 1 + s->siblings.size();
  if (outputs_.size() >= n) return;
  outputs_.resize(n);
  output_sequences_.resize(n);
  n_called_back_.resize(n);
}

// Its owner takes the result before it has seen what came of it in a step that threw.
void Engine::forget_output(const Sequence& s) noexcept {
  for (std::size_t i = 0; i < n_outputs_; ++i)
    if (output_sequences_[i] == &s) output_sequences_[i] = nullptr;
}

StepOutput& Engine::output_of(Sequence& s) noexcept {
  for (std::size_t i = 0; i < n_outputs_; ++i)
    if (output_sequences_[i] == &s) return outputs_[i];
  StepOutput& out = outputs_[n_outputs_];
  out.id = s.id;
  out.choice = s.choice;
  out.events.clear();
  out.finish_reason.reset();
  out.error.reset();
  n_called_back_[n_outputs_] = 0;
  output_sequences_[n_outputs_++] = &s;
  return out;
}

void Engine::finish(Sequence& s, FinishReason reason) {
  try {
    if (model_.info().names_regions && s.text)
      s.result.regions = model_.model().find_regions(model_.tokenizer().decode(s.result.token_ids),
                                                     s.result.token_ids, s.plans);
    publish_pages(s);
    publish_rest(s);
  } catch (...) {
    fail_sequence(s, std::current_exception());
    return;
  }
  end(s, reason);
}

// Its keys and values are not kept for others: they may be what is wrong.
void Engine::fail_sequence(Sequence& s, std::exception_ptr error) noexcept {
  forget_pages(s);
  s.failure = error;
  s.result.error = describe(error);
  end(s, FinishReason::kError);
}

void Engine::end(Sequence& s, FinishReason reason) noexcept {
  if (!s.finished()) {
    encoder_->forget(s);
    scheduler_.leave(s.ticket, s.n_tokens());
    if (s.group) s.group->n_open -= 1 + static_cast<int>(s.siblings.size());
  }
  s.siblings.clear();  // without the prompt they do not begin
  s.status = SequenceStatus::kFinished;
  pool_->release(s.blocks);
  s.blocks.clear();
  s.media_rows.clear();
  s.media.clear();
  s.result.finish_reason = reason;
  monitor_.ended(s);
  StepOutput& out = output_of(s);
  out.finish_reason = reason;
  out.error.reset();
  if (s.result.error) try {
      out.error = s.result.error;
    } catch (...) {
      out.error = RequestError{s.result.error->code, {}};
    }
}

void Engine::collect_finished() {
  make_room(finished_, running_.size() + waiting_.size());
  const auto collect = [&](auto& from) {
    for (auto& s : from)
      if (s->finished()) finished_.push_back(std::move(s));
    std::erase(from, nullptr);
  };
  collect(running_);
  collect(waiting_);
}

}  // namespace triptych
