// A finished sequence whose keys and values are still in the cache, and how much of it a new prompt may go on
// with: as long as tokens, positions and pictures are the same.
#pragma once

#include <cstdint>
#include <vector>

#include "models/model.h"

namespace triptych {

struct KeptSequence {
  /// Where pictures stand and what they are.
  struct Media {
    MediaRun run;
    Fingerprint fingerprint;
    std::vector<std::int32_t> text_ids;
  };

  std::vector<std::int32_t> ids;        // [n] tokens in the cache
  std::vector<std::int32_t> positions;  // [n_axes * n], axis-major
  std::vector<Media> media;
  std::vector<std::int32_t> pages;
  std::int64_t n_prompt = 0;  // of them, the prompt's

  /// Tokens at the beginning of a prompt whose keys and values are those kept here.
  std::int64_t n_common(const PromptLayout& layout, const std::vector<MediaItem>& items, int n_axes) const;
};

/// The media of a prompt, in the order of their places.
std::vector<KeptSequence::Media> media_of(const PromptLayout& layout, const std::vector<MediaItem>& items);

}  // namespace triptych
