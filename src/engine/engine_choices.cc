// Sequences of a request: one, or several that share the pages of the prompt and go on by themselves
// (SamplingParams::n and best_of). The first computes the prompt; then the others begin with its pages, and
// each draws its own first token from the same logits.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/make_room.h"
#include "engine/engine.h"
#include "engine/sequence.h"

namespace triptych {
namespace {

// The same memory, which both keep. What was moved from, as pixels that were encoded, has none.
Tensor shared(const Tensor& x) {
  const Buffer& buffer = x.buffer();
  if (buffer.data() == nullptr || x.view().empty()) return {};
  return Tensor(Buffer::wrap(buffer.owner(), buffer.data(), buffer.size_bytes(), buffer.kind()), x.dtype(),
                x.shape());
}

MediaItem shared(const MediaItem& item) {
  MediaItem out;
  out.plan = item.plan;
  out.pixels = shared(item.pixels);
  out.text_ids = item.text_ids;
  out.fingerprint = item.fingerprint;
  out.frames = item.frames;
  out.image_tokens = item.image_tokens;
  return out;
}

// Of pictures that lost some of their tokens: what is left of the prompt, and what is known of the rest.
void copy_kept(const Sequence& from, Sequence& to) {
  if (!from.keep) return;
  to.keep = std::make_unique<ImageTokenKeep>(*from.keep);
  to.tokens = from.tokens;
  to.positions = from.positions;
  to.runs = from.runs;
  to.n_prompt = from.n_prompt;
  to.n_dropped = from.n_dropped;
  to.prefix = from.prefix;
  to.result.n_dropped_image_tokens = from.result.n_dropped_image_tokens;
}

}  // namespace

// All of it but the media.
std::unique_ptr<Sequence> Engine::make_sequence(const PreparedRequest& request, const SamplingParams& params,
                                                std::uint64_t seed, int choice) {
  auto s = std::make_unique<Sequence>();
  s->set_prompt(request.layout, model_.info().n_position_axes);
  if (s->n_prompt + 1 > options_.max_context_tokens)
    fail(ErrorCode::kContextLength, "the prompt has {} tokens and the context holds {}, the answer included",
         s->n_prompt, options_.max_context_tokens);
  s->n_picture_blocks = memory_.picture_blocks(request.media);
  const std::int64_t most =
      memory_.is_limited()
          ? std::min(pool_->n_blocks(), memory_.n_blocks() - s->n_picture_blocks) * kBlockTokens
          : options_.max_context_tokens;
  const std::int64_t room = std::min(options_.max_context_tokens, most) - s->n_prompt;
  s->max_tokens = params.max_answer_tokens(s->n_prompt, room);
  std::unique_ptr<Constraint> constraint;
  if (!params.constraint.empty()) constraint = model_.token_masker().constrain(params.constraint);
  SamplingParams own = params;
  own.processors.max_length = s->n_prompt + s->max_tokens;  // the limit that a forced end meets
  s->keeps_logprobs = params.n_logprobs >= 0;
  if (params.n_sequences() > params.n) own.n_logprobs = std::max(own.n_logprobs, 0);  // to find the best
  s->sampler = std::make_unique<Sampler>(std::move(own), seed, model_.n_usable_ids(),
                                         model_.info().never_sample, model_.stop_token_ids(),
                                         std::move(constraint), static_cast<std::uint64_t>(choice));
  s->sampler->observe_prompt(s->tokens);
  for (const MediaItem& item : request.media) s->plans.push_back(item.plan);
  s->media_rows.resize(request.media.size());
  if (prefix_cache_->enabled()) s->prefix = prefix_chain(*s, request);
  if (model_.has_tokenizer()) s->text = std::make_unique<AnswerText>(model_, s->plans);
  s->stops = StopStrings(params.stop);
  s->choice = choice;
  s->times.submitted(request.arrival);
  s->result.timings.image_decode_ms = request.image_decode_ms;
  s->result.timings.preprocess_ms = request.preprocess_ms;
  if (speculator_) s->draft = speculator_->start(*s);
  s->result.n_prompt_tokens = s->n_prompt;
  for (const MediaPlan& plan : s->plans) s->result.n_image_tokens += plan.n_tokens;
  s->reserve(std::min<std::int64_t>(s->max_tokens, 1024), model_.info().n_position_axes);
  return s;
}

// The further sequences of the request of which `s` is the first.
void Engine::add_siblings(Sequence& s, const PreparedRequest& request, const SamplingParams& params,
                          std::uint64_t seed) {
  s.group = std::make_shared<ChoiceGroup>(ChoiceGroup{.n = params.n, .n_open = params.n_sequences()});
  for (int i = 1; i < params.n_sequences(); ++i) {
    s.siblings.push_back(make_sequence(request, params, seed, i));
    s.siblings.back()->group = s.group;
  }
}

// The prompt is computed, and `logits` are those behind it. What was encoded for it is shared, for siblings
// that have to compute it again.
void Engine::fork(Sequence& s, std::span<const float> logits) {
  make_room(forked_, s.siblings.size());
  std::vector<std::unique_ptr<Sequence>> siblings = std::move(s.siblings);
  s.siblings.clear();
  for (std::unique_ptr<Sequence>& sibling : siblings) {
    Sequence& own = *sibling;
    own.ticket = scheduler_.fork(s.ticket, s.n_computed);
    forked_.push_back(std::move(sibling));
    own.status = SequenceStatus::kRunning;
    try {
      for (const MediaItem& item : s.media) own.media.push_back(shared(item));
      for (std::size_t i = 0; i < s.media_rows.size(); ++i) own.media_rows[i] = shared(s.media_rows[i]);
      own.result.n_reused_tokens = s.result.n_reused_tokens;
      own.result.n_cached_media = s.result.n_cached_media;
      own.result.timings = s.result.timings;
      own.times = s.times;
      scheduler_.start(own.ticket, s.n_prompt, own.max_tokens);
      copy_kept(s, own);
      own.blocks.assign(s.blocks.begin(),
                        s.blocks.begin() + static_cast<std::ptrdiff_t>(blocks_for(s.n_computed)));
      pool_->share(own.blocks);
      own.n_computed = s.n_computed;
      own.n_published = s.n_published;
      accept_token(own, logits);
    } catch (...) {
      fail_sequence(own, std::current_exception());
    }
  }
}

// Behind the sequence they were forked from; those that find no place wait before all that have not begun.
void Engine::place_forked() {
  if (forked_.empty()) return;
  make_room(running_, forked_.size());
  make_room(waiting_, forked_.size());
  for (std::size_t i = forked_.size(); i-- > 0;) {
    std::unique_ptr<Sequence> s = std::move(forked_[i]);
    const auto first =
        std::find_if(running_.begin(), running_.end(), [&](const auto& other) { return other->id == s->id; });
    if (s->finished() || static_cast<int>(running_.size()) < options_.max_sequences) {
      running_.insert(first == running_.end() ? first : std::next(first), std::move(s));
      continue;
    }
    try {
      give_way(*s);
    } catch (...) {
      fail_sequence(*s, std::current_exception());
    }
    waiting_.push_back(std::move(s));
  }
  forked_.clear();
}

}  // namespace triptych
