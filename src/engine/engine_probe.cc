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
TensorView Engine::run_probe(std::int64_t n_rows, ExecObserver* observer) {
  Sequence& s = *probe_;
  const std::int64_t n_missing =
      blocks_for(s.n_computed + n_rows) - static_cast<std::int64_t>(s.blocks.size());
  while (pool_->n_free() < n_missing)
    TRIPTYCH_CHECK(prefix_cache_->evict_one(), "forward_prompt needs an idle engine");
  reserve_blocks(s, s.n_computed + n_rows);
  probe_logit_rows_.resize(static_cast<std::size_t>(n_rows));
  std::iota(probe_logit_rows_.begin(), probe_logit_rows_.end(), 0);
  const SequenceRows rows = s.rows(n_rows, model_.info().n_position_axes, probe_logit_rows_);
  const TensorView logits = runner_->forward({&rows, 1}, observer);
  s.n_computed += n_rows;
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
    copy.frames = item.frames;
    s.media.push_back(std::move(copy));
  }
  s.media_rows.resize(s.media.size());
  encode(s, observer);
  probe_ = std::move(probe);
  try {
    return run_probe(s.n_prompt, observer);
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
    const auto n_kept = static_cast<std::size_t>(s.n_computed);
    s.tokens.resize(n_kept);
    s.positions.resize(n_kept * static_cast<std::size_t>(model_.info().n_position_axes));
    s.next_position -= static_cast<std::int32_t>(n);
    throw;
  }
}

}  // namespace triptych
