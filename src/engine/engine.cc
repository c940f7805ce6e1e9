// Requests of an engine: how they come, start, give way and end. Steps are in engine_step.cc.
#include "engine/engine.h"

#include <algorithm>
#include <new>
#include <random>
#include <utility>

#include "base/error.h"
#include "engine/sequence.h"

namespace triptych {
namespace {

std::uint64_t fresh_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

RequestError describe(const std::exception_ptr& error) {
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
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

Engine::Engine(LoadedModel& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      vision_embeddings_(model.backend(), options.vision_embedding_cache_bytes, options.vision_cache),
      scheduler_({.max_batch_tokens = options.max_batch_tokens, .max_sequences = options.max_sequences}) {
  const ModelInfo& info = model.info();
  if (options_.max_context_tokens < 0 || options_.kv_cache_tokens < 0 || options_.max_batch_tokens < 1 ||
      options_.max_sequences < 1)
    fail(ErrorCode::kInvalidArgument, "engine: sizes must be positive");
  if (options_.max_context_tokens == 0) options_.max_context_tokens = info.max_context_tokens;
  if (options_.max_context_tokens > info.max_context_tokens)
    fail(ErrorCode::kInvalidArgument, "context of {} tokens: the model was trained for {}",
         options_.max_context_tokens, info.max_context_tokens);
  options_.kv_cache_tokens = std::max(options_.kv_cache_tokens, options_.max_context_tokens);
  if (options_.kv_cache_tokens > (std::int64_t{1} << 24) * kBlockTokens)
    fail(ErrorCode::kInvalidArgument, "a key/value cache of {} tokens is too large",
         options_.kv_cache_tokens);
  const std::int64_t n_blocks = blocks_for(options_.kv_cache_tokens);
  runner_ = std::make_unique<ModelRunner>(
      model.model(), model.backend(),
      ModelRunnerOptions{.n_blocks = static_cast<int>(n_blocks),
                         .kv_dtype = options_.kv_cache_dtype.value_or(model.auto_kv_dtype()),
                         .max_sequences = options_.max_sequences,
                         .replay_steps = options_.replay_steps,
                         .check_numerics = model.checks_numerics()});
  pool_ = std::make_unique<BlockPool>(runner_->kv_cache());
  prefix_cache_ = std::make_unique<PrefixCache>(*pool_, options_.prefix_cache_bytes,
                                                runner_->kv_cache().page_bytes(), info.max_shareable_tokens);
  if (prefix_cache_->enabled()) prefix_model_ = model.fingerprint();
}

Engine::~Engine() = default;

RequestId Engine::submit(PreparedRequest request, const SamplingParams& params, TokenCallback on_token) {
  params.validate(model_.info().vocab_size);
  const std::uint64_t seed = params.seed.value_or(fresh_seed());
  std::unique_ptr<Sequence> s = make_sequence(request, params, seed, 0);
  if (params.n_sequences() > 1) add_siblings(*s, request, params, seed);
  s->media = std::move(request.media);
  s->on_token = std::move(on_token);
  for (auto& sibling : s->siblings) sibling->on_token = s->on_token;
  s->id = next_id_++;
  for (auto& sibling : s->siblings) sibling->id = s->id;
  waiting_.push_back(std::move(s));
  return waiting_.back()->id;
}

void Engine::cancel(RequestId id) {
  for (auto& s : waiting_)
    if (s->id == id) s->cancelled = true;
  for (auto& s : running_)
    if (s->id == id) s->cancelled = true;
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
  for (Sequence* s : own) results.push_back(std::move(s->result));
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
    pool_->release(s->blocks);
    return true;
  };
  std::erase_if(waiting_, is_this);
  std::erase_if(running_, is_this);
  std::erase_if(finished_, is_this);
}

SequenceState Engine::state_of(const Sequence& s) const {
  return {.n_tokens = s.n_tokens(),
          .n_computed = s.n_computed,
          .n_blocks = static_cast<std::int64_t>(s.blocks.size()) - (must_copy_page(s) ? 1 : 0),
          .n_owned_blocks = std::count_if(s.blocks.begin(), s.blocks.end(),
                                          [&](std::int32_t b) { return pool_->n_users(b) == 1; })};
}

void Engine::note_states() {
  states_.clear();
  for (const auto& s : running_) states_.push_back(state_of(*s));
}

void Engine::end_cancelled() {
  for (auto& s : running_)
    if (s->cancelled && !s->finished()) finish(*s, FinishReason::kCancelled);
  for (auto& s : waiting_)
    if (s->cancelled && !s->finished()) finish(*s, FinishReason::kCancelled);
}

// Waiting requests start in order, as soon as there is room for what is known of them.
void Engine::admit() {
  while (!waiting_.empty() && find_room(*waiting_.front())) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    try {
      start(*running_.back());
    } catch (...) {
      fail_sequence(*running_.back(), std::current_exception());
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
    PrefixCache::Match found;
    if (!prefix_cache_->empty()) found = prefix_cache_->find(s.prefix, s.prefix_tokens());
    next.n_blocks = found.n_tokens / kBlockTokens;
    const std::int64_t n_kept = found.n_idle_whole + (found.idle_part && !running_.empty() ? 1 : 0);
    if (scheduler_.admits(states_, next, n_available_blocks() - n_kept)) return true;
    if (!probe_) return false;
    release_probe();
  }
}

void Engine::start(Sequence& s) {
  s.status = SequenceStatus::kRunning;
  if (prefix_cache_->empty()) return;
  PrefixCache::Match found = prefix_cache_->take(s.prefix, s.prefix_tokens());
  s.blocks = std::move(found.blocks);
  s.n_computed = found.n_tokens;
  s.n_published = static_cast<std::size_t>(found.n_tokens / kBlockTokens);
  if (s.n_tokens() == s.n_prompt) s.result.n_reused_tokens = found.n_tokens;
}

// It keeps its tokens, its draws and its encoded media; keys and values are computed again.
void Engine::preempt_youngest() {
  std::unique_ptr<Sequence> s = std::move(running_.back());
  running_.pop_back();
  pool_->release(s->blocks);
  s->blocks.clear();
  s->n_computed = 0;
  s->n_published = 0;
  s->status = SequenceStatus::kWaiting;
  waiting_.push_front(std::move(s));
  ++n_preemptions_;
}

StepOutput& Engine::output_of(Sequence& s) {
  for (std::size_t i = 0; i < n_outputs_; ++i)
    if (output_sequences_[i] == &s) return outputs_[i];
  if (n_outputs_ == outputs_.size()) {
    outputs_.emplace_back();
    output_sequences_.emplace_back();
  }
  StepOutput& out = outputs_[n_outputs_];
  out.id = s.id;
  out.choice = s.choice;
  out.events.clear();
  out.finish_reason.reset();
  out.error.reset();
  output_sequences_[n_outputs_++] = &s;
  return out;
}

void Engine::finish(Sequence& s, FinishReason reason) {
  try {
    if (model_.info().names_regions && s.text)
      s.result.regions = model_.model().find_regions(model_.tokenizer().decode(s.result.token_ids),
                                                     s.result.token_ids, s.plans);
    publish_rest(s);
  } catch (...) {
    fail_sequence(s, std::current_exception());
    return;
  }
  end(s, reason);
}

// Its keys and values are not kept for others: they may be what is wrong.
void Engine::fail_sequence(Sequence& s, std::exception_ptr error) {
  forget_pages(s);
  s.failure = error;
  s.result.error = describe(error);
  end(s, FinishReason::kError);
}

void Engine::end(Sequence& s, FinishReason reason) {
  if (s.group && !s.finished()) s.group->n_open -= 1 + static_cast<int>(s.siblings.size());
  s.siblings.clear();  // without the prompt they do not begin
  s.status = SequenceStatus::kFinished;
  pool_->release(s.blocks);
  s.blocks.clear();
  s.media_rows.clear();
  s.media.clear();
  s.result.finish_reason = reason;
  StepOutput& out = output_of(s);
  out.finish_reason = reason;
  out.error = s.result.error;
}

void Engine::collect_finished() {
  const auto collect = [&](auto& from) {
    for (auto& s : from)
      if (s->finished()) finished_.push_back(std::move(s));
    std::erase(from, nullptr);
  };
  collect(running_);
  collect(waiting_);
}

}  // namespace triptych
