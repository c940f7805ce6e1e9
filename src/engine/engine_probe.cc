// One sequence beside the requests, whose logits are looked at: reports, parity, reference values.
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/flush_denormals.h"
#include "engine/engine.h"
#include "engine/sequence.h"

namespace triptych {

void Engine::release_probe() {
  if (probe_) pool_->release(probe_->blocks);
  probe_.reset();
}

// The next rows, logits of all of them.
TensorView Engine::run_probe(std::int64_t n_rows, ExecObserver* observer,
                             std::span<const std::int32_t> skipped_layers) {
  Sequence& s = *probe_;
  const std::int64_t n_missing =
      blocks_for(s.n_computed + n_rows) - static_cast<std::int64_t>(s.blocks.size());
  while (pool_->n_free() < n_missing)
    TRIPTYCH_CHECK(prefix_cache_->evict_one(), "forward_prompt needs an idle engine");
  reserve_blocks(s, s.n_computed + n_rows);
  probe_logit_rows_.resize(static_cast<std::size_t>(n_rows));
  std::iota(probe_logit_rows_.begin(), probe_logit_rows_.end(), 0);
  const SequenceRows rows = s.rows(n_rows, model_.info().n_position_axes, probe_logit_rows_);
  received_attention_.clear();
  if (s.keep) received_attention_.add(0, s, n_rows);
  const TensorView logits =
      skipped_layers.empty() ? runner_->forward({&rows, 1}, observer,
                                                received_attention_.empty() ? nullptr : &received_attention_)
                             : runner_->forward_draft({&rows, 1}, skipped_layers);
  s.n_computed += n_rows;
  if (s.keep) {
    s.keep->end_step();
    drop_cached_tokens(s);
  }
  return logits;
}

TensorView Engine::forward_prompt(const PreparedRequest& request, ExecObserver* observer) {
  const FlushDenormals no_denormals;
  release_probe();
  auto probe = std::make_unique<Sequence>();
  Sequence& s = *probe;
  s.set_prompt(request.layout, model_.info().n_position_axes);
  if (s.n_prompt > options_.max_context_tokens)
    fail(ErrorCode::kContextLength, "the prompt has {} tokens and the context holds {}", s.n_prompt,
         options_.max_context_tokens);
  s.reserve(options_.max_context_tokens - s.n_prompt, model_.info().n_position_axes);
  s.blocks.reserve(static_cast<std::size_t>(blocks_for(options_.max_context_tokens)));
  for (const MediaItem& item : request.media) {
    MediaItem copy;
    copy.plan = item.plan;
    copy.pixels = Tensor::copy_of(item.pixels);
    copy.text_ids = item.text_ids;
    copy.fingerprint = item.fingerprint;
    copy.image_tokens = item.image_tokens;
    copy.frames = item.frames;
    s.media.push_back(std::move(copy));
  }
  s.media_rows.resize(s.media.size());
  s.keep = ImageTokenKeep::make(s, model_.info().n_position_axes);
  encode(s, observer);
  probe_ = std::move(probe);
  try {
    if (s.keep)
      while (s.keep->n_schedulable(s) < s.n_tokens())
        run_probe(s.keep->n_schedulable(s) - s.n_computed, observer);
    return run_probe(s.n_tokens() - s.n_computed, observer);
  } catch (...) {
    release_probe();
    throw;
  }
}

TensorView Engine::forward_next(std::span<const std::int32_t> ids, ExecObserver* observer) {
  const FlushDenormals no_denormals;
  TRIPTYCH_CHECK(probe_ != nullptr && !ids.empty(), "forward_next before forward_prompt");
  Sequence& s = *probe_;
  const auto n = static_cast<std::int64_t>(ids.size());
  if (s.n_computed + n > options_.max_context_tokens)
    fail(ErrorCode::kContextLength, "the context of {} tokens is full", options_.max_context_tokens);
  for (const std::int32_t id : ids) s.append(id, model_.info().n_position_axes);
  try {
    return run_probe(n, observer);
  } catch (...) {
    s.take_back(n, model_.info().n_position_axes);
    throw;
  }
}

TensorView Engine::forward_draft(std::span<const std::int32_t> ids,
                                 std::span<const std::int32_t> skipped_layers) {
  const FlushDenormals no_denormals;
  TRIPTYCH_CHECK(probe_ != nullptr && !ids.empty() && !skipped_layers.empty(),
                 "forward_draft before forward_prompt");
  Sequence& s = *probe_;
  const auto n = static_cast<std::int64_t>(ids.size());
  const std::int64_t n_before = s.n_computed;
  if (n_before + n > options_.max_context_tokens)
    fail(ErrorCode::kContextLength, "the context of {} tokens is full", options_.max_context_tokens);
  for (const std::int32_t id : ids) s.append(id, model_.info().n_position_axes);
  const auto go_back = [&] {
    s.n_computed = n_before;
    s.take_back(n, model_.info().n_position_axes);
  };
  try {
    const TensorView logits = run_probe(n, nullptr, skipped_layers);
    go_back();
    return logits;
  } catch (...) {
    go_back();
    throw;
  }
}

}  // namespace triptych
