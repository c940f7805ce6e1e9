#include "engine/model_runner.h"

#include <algorithm>
#include <utility>

#include "backend/memory.h"
#include "base/error.h"
#include "engine/block_pool.h"

namespace triptych {
namespace {

// Steps in which one sequence has drafted tokens judged are recorded up to so many rows. Those of several
// sequences are not: how their rows are shared out differs from step to step.
constexpr std::int64_t kMaxJudgedRows = 40;
// Recorded steps read the batch where it lies; beyond this many rows they are recorded anew when it moves.
constexpr std::size_t kStableRows = 1024;

KvGeometry geometry(const ModelInfo& info, const ModelRunnerOptions& options) {
  return {.n_layers = info.n_layers,
          .n_kv_heads = info.n_kv_heads,
          .head_dim = info.head_dim,
          .page_tokens = kBlockTokens,
          .n_pages = options.n_blocks,
          .dtype = options.kv_dtype};
}

// 0 for none. Two sets that met would make drafts worse, and no answer wrong.
std::uint64_t hash_of(std::span<const std::int32_t> layers) {
  std::uint64_t out = 0;
  for (const std::int32_t layer : layers)
    out = (out ^ static_cast<std::uint64_t>(layer + 1)) * 1099511628211ULL;
  return out;
}

}  // namespace

ModelRunner::ModelRunner(const Model& model, Backend& backend, const ModelRunnerOptions& options)
    : model_(model),
      backend_(backend),
      replay_steps_(options.replay_steps),
      kv_cache_(backend.make_kv_cache(geometry(model.info(), options))),
      batch_(model.info().n_position_axes, kBlockTokens, kStableRows,
             std::min(kStableRows, static_cast<std::size_t>(options.max_sequences))),
      arena_(make_arena(backend)),
      tower_arena_(make_arena(backend)),
      step_plans_(backend, arena_) {
  if (options.check_numerics) numerics_.emplace();
}

// The check, when there is one, sees everything first.
ExecObserver* ModelRunner::observe(ExecObserver* wanted, std::string_view part) {
  if (!numerics_) return wanted;
  numerics_->restart(wanted, part);
  return &*numerics_;
}

TensorView ModelRunner::encode_media(std::span<const MediaItem> items, ExecObserver* observer) {
  arena_.reset();
  ExecContext cx(backend_, arena_, observe(observer, "vision"));
  const StepScope step(backend_, {.n_sequences = static_cast<std::int64_t>(items.size())});
  const TensorView rows = model_.encode_media(cx, items);
  const ExecContext::PatchRows& patches = cx.patch_rows();
  patch_rows_ = {patches.n_rows, patches.n_rows};
  for (const MediaItem& item : items)
    if (patches.n_rows > 0) patch_rows_.n_padded -= patches_of(item.pixels.shape(), patches.n_values);
  return rows;
}

std::unique_ptr<EncodePass> ModelRunner::begin_encoding(std::vector<MediaItem>&& items,
                                                        const ClockMs& clock) {
  return std::make_unique<EncodePass>(model_, backend_, tower_arena_, std::move(items),
                                      observe(nullptr, "vision"), clock);
}

// The model on this batch, or what was recorded of an earlier step like it.
TensorView ModelRunner::run(const Batch& batch, ExecObserver* observer, CacheAttentionListener* listener) {
  const StepShape shape = {.n_rows = static_cast<std::int64_t>(batch.token_ids.size()),
                           .n_sequences = static_cast<std::int64_t>(batch.sequences.size())};
  const StepScope step(backend_, shape);
  const auto n_logit_rows = static_cast<std::int64_t>(batch.logit_rows.size());
  const bool judges_one =
      shape.n_sequences == 1 && n_logit_rows == shape.n_rows && shape.n_rows <= kMaxJudgedRows;
  const bool recurs = shape.n_rows == shape.n_sequences || (judges_one && batch.skipped_layers.empty());
  if (replay_steps_ && recurs && observer == nullptr && listener == nullptr && batch.media.empty())
    return step_plans_.run(
        {.shape = shape,
         .n_logit_rows = n_logit_rows,
         .skipped_layers = hash_of(batch.skipped_layers),
         .addresses = {batch.kv_cache, batch.token_ids.data(), batch.positions.data(), batch.lengths.data(),
                       batch.sequences.data(), batch.kv_slots.data(), batch.logit_rows.data()}},
        [&](ExecContext& cx) { return forward_in(cx, batch); });
  arena_.reset();
  ExecContext cx(backend_, arena_, observer);
  cx.set_cache_listener(listener);
  return forward_in(cx, batch);
}

TensorView ModelRunner::forward_in(ExecContext& cx, const Batch& batch) {
  const TensorView logits = cx.download(model_.forward(cx, batch));
  if (cx.n_block_rows() > 0)
    n_padded_tokens_ += cx.n_block_rows() - static_cast<std::int64_t>(batch.token_ids.size());
  return logits;
}

TensorView ModelRunner::forward(std::span<const SequenceRows> sequences, ExecObserver* observer,
                                CacheAttentionListener* listener) {
  const Batch batch = batch_.build(sequences, kv_cache_.get());
  token_rows_ = {static_cast<std::int64_t>(batch.token_ids.size()),
                 static_cast<std::int64_t>(batch.token_ids.size())};
  for (const SequenceRows& s : sequences)
    token_rows_.n_padded -= static_cast<std::int64_t>(s.token_ids.size());
  const TensorView logits = run(batch, observe(observer, "language"), listener);
  if (numerics_) numerics_->check("logits", logits);
  return logits;
}

TensorView ModelRunner::forward_draft(std::span<const SequenceRows> sequences,
                                      std::span<const std::int32_t> skipped_layers) {
  Batch batch = batch_.build(sequences, kv_cache_.get());
  TRIPTYCH_CHECK(batch.logit_rows.size() == batch.token_ids.size(), "[draft] logits of {} of {} rows",
                 batch.logit_rows.size(), batch.token_ids.size());
  batch.skipped_layers = skipped_layers;
  return run(batch, nullptr, nullptr);
}

}  // namespace triptych
