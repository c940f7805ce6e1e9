#include "engine/sequence.h"

#include "base/error.h"

namespace triptych {

std::int64_t Sequence::n_ready() const {
  std::int64_t out = n_tokens();
  if (n_computed >= n_prompt) return out;
  for (const MediaRun& run : runs)
    if (run.first_prompt_row + run.n_rows > n_computed &&
        media_rows[static_cast<std::size_t>(run.media_index)].view().empty())
      out = std::min(out, std::max(run.first_prompt_row, n_computed));
  return out;
}

void Sequence::set_prompt(const PromptLayout& layout, int n_axes) {
  tokens = layout.input_ids;
  n_prompt = n_tokens();
  if (n_prompt == 0) fail(ErrorCode::kInvalidArgument, "the prompt is empty: it has no token");
  const auto axes = static_cast<std::size_t>(n_axes);
  TRIPTYCH_CHECK(layout.positions.size() == axes * tokens.size(), "[sequence] {} positions for {} tokens",
                 layout.positions.size(), tokens.size());
  positions.resize(layout.positions.size());
  for (std::size_t t = 0; t < tokens.size(); ++t)
    for (std::size_t a = 0; a < axes; ++a) positions[t * axes + a] = layout.positions[a * tokens.size() + t];
  next_position = layout.next_position;
  runs = layout.runs;
}

void Sequence::reserve(std::int64_t n_more, int n_axes) {
  const auto n = static_cast<std::size_t>(n_tokens() + n_more);
  tokens.reserve(n);
  positions.reserve(n * static_cast<std::size_t>(n_axes));
}

void Sequence::append(std::int32_t token_id, int n_axes) {
  tokens.push_back(token_id);
  positions.insert(positions.end(), static_cast<std::size_t>(n_axes), next_position);
  ++next_position;
}

void Sequence::take_back(std::int64_t n, int n_axes) {
  const auto n_kept = static_cast<std::size_t>(n_tokens() - n);
  tokens.resize(n_kept);
  positions.resize(n_kept * static_cast<std::size_t>(n_axes));
  next_position -= static_cast<std::int32_t>(n);
}

SequenceRows Sequence::rows(std::int64_t n_rows, int n_axes, std::span<const std::int32_t> logit_rows) const {
  const auto first = static_cast<std::size_t>(n_computed);
  const auto n = static_cast<std::size_t>(n_rows);
  const auto axes = static_cast<std::size_t>(n_axes);
  return {.token_ids = std::span(tokens).subspan(first, n),
          .positions = std::span(positions).subspan(first * axes, n * axes),
          .first_token = n_computed,
          .n_prompt = n_prompt,
          .n_dropped = n_dropped,
          .first_cache_index = n_computed,
          .blocks = blocks,
          .logit_rows = logit_rows,
          .runs = runs,
          .media_rows = media_rows};
}

}  // namespace triptych
