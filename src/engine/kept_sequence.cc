#include "engine/kept_sequence.h"

#include <algorithm>

namespace triptych {

std::vector<KeptSequence::Media> media_of(const PromptLayout& layout, const std::vector<MediaItem>& items) {
  std::vector<KeptSequence::Media> out;
  for (const MediaRun& run : layout.runs) {
    const MediaItem& item = items[static_cast<std::size_t>(run.media_index)];
    out.push_back({run, item.fingerprint, item.text_ids});
  }
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return a.run.first_prompt_row < b.run.first_prompt_row; });
  return out;
}

std::int64_t KeptSequence::n_common(const PromptLayout& layout, const std::vector<MediaItem>& items,
                                    int n_axes) const {
  const std::size_t n_new = layout.input_ids.size();
  std::size_t n = std::min(ids.size(), n_new);
  n = static_cast<std::size_t>(
      std::mismatch(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), layout.input_ids.begin())
          .first -
      ids.begin());
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(n_axes); ++axis) {
    const auto own = positions.begin() + static_cast<std::ptrdiff_t>(axis * ids.size());
    const auto other = layout.positions.begin() + static_cast<std::ptrdiff_t>(axis * n_new);
    n = static_cast<std::size_t>(std::mismatch(own, own + static_cast<std::ptrdiff_t>(n), other).first - own);
  }
  auto common = static_cast<std::int64_t>(n);
  const std::vector<Media> theirs = media_of(layout, items);
  const auto same = [](const Media& a, const Media& b) {
    return a.run.first_prompt_row == b.run.first_prompt_row && a.run.n_rows == b.run.n_rows &&
           a.run.first_media_row == b.run.first_media_row && !a.fingerprint.empty() &&
           a.fingerprint == b.fingerprint && a.text_ids == b.text_ids;
  };
  for (std::size_t i = 0; i < std::max(media.size(), theirs.size()); ++i) {
    if (i < media.size() && i < theirs.size() && same(media[i], theirs[i])) continue;
    if (i < media.size()) common = std::min(common, media[i].run.first_prompt_row);
    if (i < theirs.size()) common = std::min(common, theirs[i].run.first_prompt_row);
    break;  // later ones stand behind
  }
  return common;
}

}  // namespace triptych
