#include "engine/image_token_choices.h"

#include <algorithm>

namespace triptych {

const std::vector<std::int32_t>* ImageTokenChoices::find(const MediaItem& item) {
  if (item.fingerprint.empty()) return nullptr;
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.fingerprint == item.fingerprint && e.options == item.image_tokens && e.text_ids == item.text_ids;
  });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return &entries_.front().kept;
}

void ImageTokenChoices::put(const MediaItem& item, std::span<const std::int32_t> kept) {
  if (item.fingerprint.empty() || find(item) != nullptr) return;
  entries_.push_front({item.fingerprint, item.text_ids, item.image_tokens, {kept.begin(), kept.end()}});
  if (entries_.size() > max_entries_) entries_.pop_back();
}

}  // namespace triptych
