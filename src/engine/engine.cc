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

// What keys and values of the sequence's first n tokens depend on.
PrefixKey key_of(const Sequence& s, std::int64_t n, int n_axes) {
  PrefixKey out;
  out.tokens.assign(s.tokens.begin(), s.tokens.begin() + n);
  out.positions.assign(s.positions.begin(), s.positions.begin() + n * n_axes);
  out.media = media_of(s.runs, s.media);
  return out;
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
      options_.max_sequences < 1 || options_.max_cached_prefixes < 0)
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
  prefix_cache_ = std::make_unique<PrefixCache>(
      *pool_, static_cast<std::size_t>(options_.max_cached_prefixes), info.max_shareable_tokens);
}

Engine::~Engine() = default;

RequestId Engine::submit(PreparedRequest request, const SamplingParams& params, TokenCallback on_token) {
  params.validate(model_.info().vocab_size);
  auto s = std::make_unique<Sequence>();
  s->set_prompt(request.layout, model_.info().n_position_axes);
  if (s->n_prompt + 1 > options_.max_context_tokens)
    fail(ErrorCode::kContextLength, "the prompt has {} tokens and the context holds {}, the answer included",
         s->n_prompt, options_.max_context_tokens);
  const std::int64_t room = options_.max_context_tokens - s->n_prompt;
  s->max_tokens = params.max_answer_tokens(s->n_prompt, room);
  std::unique_ptr<Constraint> constraint;
  if (!params.constraint.empty()) constraint = model_.token_masker().constrain(params.constraint);
  SamplingParams own = params;
  own.processors.max_length = s->n_prompt + s->max_tokens;  // the limit that a forced end meets
  s->sampler =
      std::make_unique<Sampler>(std::move(own), params.seed.value_or(fresh_seed()), model_.n_usable_ids(),
                                model_.info().never_sample, model_.stop_token_ids(), std::move(constraint));
  s->sampler->observe_prompt(s->tokens);
  s->media = std::move(request.media);
  s->media_rows.resize(s->media.size());
  for (const MediaItem& item : s->media) s->plans.push_back(item.plan);
  if (model_.has_tokenizer()) s->text = std::make_unique<AnswerText>(model_, s->plans);
  s->stops = StopStrings(params.stop);
  s->on_token = std::move(on_token);
  s->result.n_prompt_tokens = s->n_prompt;
  for (const MediaPlan& plan : s->plans) s->result.n_image_tokens += plan.n_tokens;
  s->reserve(std::min<std::int64_t>(s->max_tokens, 1024), model_.info().n_position_axes);
  s->id = next_id_++;
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

GenerationResult Engine::generate(PreparedRequest request, const SamplingParams& params,
                                  TokenCallback on_token) {
  const RequestId id = submit(std::move(request), params, std::move(on_token));
  const auto is_this = [id](const auto& s) { return s->id == id; };
  try {
    while (std::none_of(finished_.begin(), finished_.end(), is_this)) {
      TRIPTYCH_CHECK(has_work(), "a request vanished");
      step();
    }
    const auto found = std::find_if(finished_.begin(), finished_.end(), is_this);
    if ((*found)->failure) std::rethrow_exception((*found)->failure);
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
          .n_blocks = static_cast<std::int64_t>(s.blocks.size()),
          .n_owned_blocks = std::count_if(s.blocks.begin(), s.blocks.end(),
                                          [&](std::int32_t b) { return pool_->n_references(b) == 1; })};
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

// Blocks that nobody needs for a running request: prefixes, then the sequence of forward_prompt.
bool Engine::give_up_cached() {
  if (prefix_cache_->evict_one()) return true;
  if (!probe_) return false;
  release_probe();
  return true;
}

bool Engine::find_room(const Sequence& s) {
  if (static_cast<int>(running_.size()) >= options_.max_sequences) return false;
  note_states();
  for (;;) {
    SequenceState next = state_of(s);
    std::int64_t n_found = 0;
    if (!prefix_cache_->empty())
      n_found = prefix_cache_->find(key_of(s, s.n_tokens(), model_.info().n_position_axes));
    next.n_blocks = n_found / kBlockTokens;
    if (scheduler_.admits(states_, next, pool_->n_free())) return true;
    // What it begins with is the last to go, and stays while others run that will give back blocks.
    if (n_found > 0 && prefix_cache_->size() == 1 && !running_.empty()) return false;
    if (!give_up_cached()) return false;
  }
}

void Engine::start(Sequence& s) {
  s.status = SequenceStatus::kRunning;
  if (prefix_cache_->empty()) return;
  PrefixCache::Prefix prefix = prefix_cache_->take(key_of(s, s.n_tokens(), model_.info().n_position_axes));
  s.blocks = std::move(prefix.blocks);
  s.n_computed = prefix.n_tokens;
  if (s.n_tokens() == s.n_prompt) s.result.n_reused_tokens = prefix.n_tokens;
}

// It keeps its tokens, its draws and its encoded media; keys and values are computed again.
void Engine::preempt_youngest() {
  std::unique_ptr<Sequence> s = std::move(running_.back());
  running_.pop_back();
  pool_->release(s->blocks);
  s->blocks.clear();
  s->n_computed = 0;
  s->status = SequenceStatus::kWaiting;
  waiting_.push_front(std::move(s));
  ++n_preemptions_;
}

void Engine::reserve_blocks(Sequence& s, std::int64_t n_tokens) {
  while (static_cast<std::int64_t>(s.blocks.size()) < blocks_for(n_tokens)) {
    s.blocks.reserve(s.blocks.size() + 1);  // so that a block that was taken is noted
    s.blocks.push_back(pool_->allocate());
  }
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
    if (prefix_cache_->enabled())
      prefix_cache_->put(key_of(s, s.n_computed, model_.info().n_position_axes), s.n_prompt, s.blocks);
  } catch (...) {
    fail_sequence(s, std::current_exception());
    return;
  }
  end(s, reason);
}

// Its keys and values are not kept for others: they may be what is wrong.
void Engine::fail_sequence(Sequence& s, std::exception_ptr error) {
  s.failure = error;
  s.result.error = describe(error);
  end(s, FinishReason::kError);
}

void Engine::end(Sequence& s, FinishReason reason) {
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
