// Pure arithmetic on prompts that several families share.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "models/model.h"

namespace triptych {

/// Replaces the i-th placeholder by n_tokens copies of itself, positions 0, 1, 2, ... Throws
/// Error(kInvalidArgument) with both counts when the prompt does not have one placeholder per item.
PromptLayout expand_in_place(std::span<const std::int32_t> ids, std::int32_t placeholder,
                             std::span<const MediaPlan> plans);

/// The same with placeholders of two kinds: the i-th of `image` is the i-th picture's, the i-th of `video`
/// the i-th video's.
struct MediaPlaceholders {
  std::int32_t image = -1;
  std::int32_t video = -1;
};
PromptLayout expand_in_place(std::span<const std::int32_t> ids, const MediaPlaceholders& placeholders,
                             std::span<const MediaPlan> plans);

/// The picture's n_tokens placeholders first, then all other ids in order (BOS after the picture), positions
/// 0, 1, 2, ...; for families of one picture. Throws as expand_in_place.
PromptLayout expand_image_first(std::span<const std::int32_t> ids, std::int32_t placeholder,
                                std::span<const MediaPlan> plans);

/// Throws Error(kInvalidArgument): "the prompt has N image placeholders but M images were given".
void check_placeholder_count(std::int64_t n_placeholders, std::int64_t n_items,
                             std::string_view kind = "image");

/// Ids of a step with the rows that media replace set to 0, so that a placeholder need not be a row of the
/// table. In the arena.
std::span<const std::int32_t> ids_for_embedding(ExecContext& cx, const Batch& batch);

/// Writes the media rows of a step, the first D columns, over its token embeddings h [T, D].
void apply_media(ExecContext& cx, const Batch& batch, TensorView h);

}  // namespace triptych
