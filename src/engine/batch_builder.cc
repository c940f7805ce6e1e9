#include "engine/batch_builder.h"

#include <algorithm>

#include "base/error.h"

namespace triptych {

BatchBuilder::BatchBuilder(int n_axes, int block_tokens, std::size_t n_rows, std::size_t n_sequences)
    : n_axes_(n_axes), block_tokens_(block_tokens) {
  for (auto* buffer : {&ids_, &slots_, &logit_rows_}) buffer->reserve(n_rows);
  positions_.reserve(n_rows * static_cast<std::size_t>(n_axes));
  lengths_.reserve(n_rows);
  sequences_.reserve(n_sequences);
}

// Media rows that stand for tokens of this step.
void BatchBuilder::add_media(const SequenceRows& s, std::int64_t first_row) {
  const std::int64_t end = s.first_token + static_cast<std::int64_t>(s.token_ids.size());
  for (const MediaRun& run : s.runs) {
    const std::int64_t from = std::max(run.first_prompt_row, s.first_token);
    const std::int64_t to = std::min(run.first_prompt_row + run.n_rows, end);
    if (from >= to) continue;
    const auto item = static_cast<std::size_t>(run.media_index);
    const std::int64_t media_row = run.first_media_row + (from - run.first_prompt_row);
    TRIPTYCH_CHECK(item < s.media_rows.size() && !s.media_rows[item].view().empty() &&
                       media_row + (to - from) <= s.media_rows[item].view().dim(0),
                   "[batch] rows {} to {} of medium {} were not encoded", media_row, media_row + (to - from),
                   item);
    const std::size_t at = override_rows_.size();
    for (std::int64_t t = from; t < to; ++t)
      override_rows_.push_back(static_cast<std::int32_t>(first_row + t - s.first_token));
    overrides_.push_back({.rows = s.media_rows[item].view().rows(media_row, media_row + (to - from)),
                          .at_rows = std::span<const std::int32_t>(override_rows_).subspan(at)});
  }
}

void BatchBuilder::add(const SequenceRows& s, std::size_t n_total) {
  const auto n_axes = static_cast<std::size_t>(n_axes_);
  const std::size_t n = s.token_ids.size();
  const std::int64_t n_cached = s.first_cache_index + static_cast<std::int64_t>(n);
  TRIPTYCH_CHECK(n > 0 && s.positions.size() == n * n_axes, "[batch] {} positions of {} axes for {} tokens",
                 s.positions.size(), n_axes, n);
  TRIPTYCH_CHECK(static_cast<std::int64_t>(s.blocks.size()) * block_tokens_ >= n_cached,
                 "[batch] {} blocks for {} tokens", s.blocks.size(), n_cached);
  const std::size_t first_row = ids_.size();
  for (std::size_t i = 0; i < n; ++i) {
    ids_.push_back(s.token_ids[i]);
    for (std::size_t a = 0; a < n_axes; ++a)
      positions_[a * n_total + first_row + i] = s.positions[i * n_axes + a];
    const std::int64_t index = s.first_cache_index + static_cast<std::int64_t>(i);
    slots_.push_back(s.blocks[static_cast<std::size_t>(index / block_tokens_)] * block_tokens_ +
                     static_cast<std::int32_t>(index % block_tokens_));
    lengths_.push_back({.n_tokens = static_cast<std::int32_t>(s.first_token + s.n_dropped) +
                                    static_cast<std::int32_t>(i) + 1,
                        .n_prompt = static_cast<std::int32_t>(s.n_prompt + s.n_dropped)});
  }
  std::int32_t last = -1;
  for (const std::int32_t row : s.logit_rows) {
    TRIPTYCH_CHECK(row > last && static_cast<std::size_t>(row) < n, "[batch] logits of row {} of {}", row, n);
    logit_rows_.push_back(static_cast<std::int32_t>(first_row) + row);
    last = row;
  }
  sequences_.push_back({.first_row = static_cast<std::int32_t>(first_row),
                        .n_rows = static_cast<std::int32_t>(n),
                        .n_context = static_cast<std::int32_t>(n_cached),
                        .pages = s.blocks});
  add_media(s, static_cast<std::int64_t>(first_row));
}

Batch BatchBuilder::build(std::span<const SequenceRows> sequences, KvCache* cache) {
  for (auto* buffer : {&ids_, &slots_, &logit_rows_, &override_rows_}) buffer->clear();
  lengths_.clear();
  sequences_.clear();
  overrides_.clear();
  std::size_t n_total = 0;
  for (const SequenceRows& s : sequences) n_total += s.token_ids.size();
  positions_.resize(n_total * static_cast<std::size_t>(n_axes_));
  override_rows_.reserve(n_total);  // views into it stay valid
  for (const SequenceRows& s : sequences) add(s, n_total);
  return {.token_ids = ids_,
          .positions = positions_,
          .lengths = lengths_,
          .sequences = sequences_,
          .kv_slots = slots_,
          .kv_cache = cache,
          .media = overrides_,
          .logit_rows = logit_rows_};
}

}  // namespace triptych
