#include "models/prompt_layout.h"

#include <algorithm>

#include "base/error.h"

namespace triptych {

void check_placeholder_count(std::int64_t n_placeholders, std::int64_t n_items) {
  if (n_placeholders == n_items) return;
  fail(ErrorCode::kInvalidArgument, "the prompt has {} image placeholder{} but {} image{} given",
       n_placeholders, n_placeholders == 1 ? "" : "s", n_items, n_items == 1 ? " was" : "s were");
}

PromptLayout expand_in_place(std::span<const std::int32_t> ids, std::int32_t placeholder,
                             std::span<const MediaPlan> plans) {
  check_placeholder_count(std::count(ids.begin(), ids.end(), placeholder),
                          static_cast<std::int64_t>(plans.size()));
  PromptLayout out;
  std::size_t next = 0;
  for (const std::int32_t id : ids) {
    if (id != placeholder) {
      out.input_ids.push_back(id);
      continue;
    }
    const std::int64_t n = plans[next].n_tokens;
    out.runs.push_back({.media_index = static_cast<int>(next),
                        .first_media_row = 0,
                        .first_prompt_row = static_cast<std::int64_t>(out.input_ids.size()),
                        .n_rows = n});
    out.input_ids.insert(out.input_ids.end(), static_cast<std::size_t>(n), placeholder);
    ++next;
  }
  out.positions.resize(out.input_ids.size());
  for (std::size_t i = 0; i < out.positions.size(); ++i) out.positions[i] = static_cast<std::int32_t>(i);
  out.next_position = static_cast<std::int32_t>(out.input_ids.size());
  return out;
}

PromptLayout expand_image_first(std::span<const std::int32_t> ids, std::int32_t placeholder,
                                std::span<const MediaPlan> plans) {
  check_placeholder_count(std::count(ids.begin(), ids.end(), placeholder),
                          static_cast<std::int64_t>(plans.size()));
  std::vector<std::int32_t> moved(plans.size(), placeholder);
  for (const std::int32_t id : ids)
    if (id != placeholder) moved.push_back(id);
  return expand_in_place(moved, placeholder, plans);
}

std::span<const std::int32_t> ids_for_embedding(ExecContext& cx, const Batch& batch) {
  if (batch.media.empty()) return batch.token_ids;
  const auto ids = cx.arena().make_span<std::int32_t>(batch.token_ids.size());
  std::copy(batch.token_ids.begin(), batch.token_ids.end(), ids.begin());
  for (const EmbeddingOverride& media : batch.media)
    for (const std::int32_t row : media.at_rows) ids[static_cast<std::size_t>(row)] = 0;
  return ids;
}

void apply_media(ExecContext& cx, const Batch& batch, TensorView h) {
  for (const EmbeddingOverride& media : batch.media)
    cx.scatter_rows(media.rows.cols(0, h.dim(1)), media.at_rows, h);
}

}  // namespace triptych
