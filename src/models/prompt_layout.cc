#include "models/prompt_layout.h"

#include <algorithm>

#include "base/error.h"

namespace triptych {

namespace {

// `next_of(id)`: the number of the item that the id stands for, -1 for an id of text.
template <typename NextOf>
PromptLayout expand(std::span<const std::int32_t> ids, std::span<const MediaPlan> plans, NextOf&& next_of) {
  PromptLayout out;
  for (const std::int32_t id : ids) {
    const int item = next_of(id);
    if (item < 0) {
      out.input_ids.push_back(id);
      continue;
    }
    const std::int64_t n = plans[static_cast<std::size_t>(item)].n_tokens;
    out.runs.push_back({.media_index = item,
                        .first_media_row = 0,
                        .first_prompt_row = static_cast<std::int64_t>(out.input_ids.size()),
                        .n_rows = n});
    out.input_ids.insert(out.input_ids.end(), static_cast<std::size_t>(n), id);
  }
  out.positions.resize(out.input_ids.size());
  for (std::size_t i = 0; i < out.positions.size(); ++i) out.positions[i] = static_cast<std::int32_t>(i);
  out.next_position = static_cast<std::int32_t>(out.input_ids.size());
  return out;
}

}  // namespace

void check_placeholder_count(std::int64_t n_placeholders, std::int64_t n_items, std::string_view kind) {
  if (n_placeholders == n_items) return;
  fail(ErrorCode::kInvalidArgument, "the prompt has {} {} placeholder{} but {} {}{} given", n_placeholders,
       kind, n_placeholders == 1 ? "" : "s", n_items, kind, n_items == 1 ? " was" : "s were");
}

PromptLayout expand_in_place(std::span<const std::int32_t> ids, std::int32_t placeholder,
                             std::span<const MediaPlan> plans) {
  check_placeholder_count(std::count(ids.begin(), ids.end(), placeholder),
                          static_cast<std::int64_t>(plans.size()));
  int next = 0;
  return expand(ids, plans, [&](std::int32_t id) { return id == placeholder ? next++ : -1; });
}

PromptLayout expand_in_place(std::span<const std::int32_t> ids, const MediaPlaceholders& placeholders,
                             std::span<const MediaPlan> plans) {
  const auto n_videos =
      std::count_if(plans.begin(), plans.end(), [](const MediaPlan& p) { return p.meta.is_video; });
  check_placeholder_count(std::count(ids.begin(), ids.end(), placeholders.image),
                          static_cast<std::int64_t>(plans.size()) - n_videos);
  check_placeholder_count(std::count(ids.begin(), ids.end(), placeholders.video), n_videos, "video");
  std::size_t next_picture = 0, next_video = 0;
  return expand(ids, plans, [&](std::int32_t id) {
    if (id != placeholders.image && id != placeholders.video) return -1;
    const bool is_video = id == placeholders.video;
    std::size_t& next = is_video ? next_video : next_picture;
    while (plans[next].meta.is_video != is_video) ++next;
    return static_cast<int>(next++);
  });
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
