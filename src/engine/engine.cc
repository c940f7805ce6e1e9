#include "engine/engine.h"

#include <algorithm>
#include <random>

#include "base/error.h"
#include "engine/engine_parts.h"

namespace triptych {
namespace {

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
  kv_cache_ =
      model.backend().make_kv_cache({.n_layers = info.n_layers,
                                     .n_kv_heads = info.n_kv_heads,
                                     .head_dim = info.head_dim,
                                     .page_tokens = kPageTokens,
                                     .n_pages = static_cast<int>(n_pages),
                                     .dtype = options_.kv_cache_dtype.value_or(model.auto_kv_dtype())});
  pages_ = std::make_unique<Pages>(static_cast<int>(n_pages), *kv_cache_);
  // Recorded steps read these where they lie; should one have to grow, they are recorded anew.
  constexpr std::size_t kRows = 1024;
  for (auto* buffer : {&ids_, &slots_, &logit_rows_}) buffer->reserve(kRows);
  positions_.reserve(kRows * static_cast<std::size_t>(info.n_position_axes));
  lengths_.reserve(kRows);
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

}  // namespace triptych
