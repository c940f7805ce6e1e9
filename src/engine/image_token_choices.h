// Which rows of pictures seen lately were chosen by diversity, so that a picture that comes again needs no
// tower to know how its prompt goes: prompts that share it find each other's keys and values.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "models/model.h"

namespace triptych {

class ImageTokenChoices {
 public:
  /// Of at most so many pictures and shares, those used last.
  explicit ImageTokenChoices(std::size_t max_entries = 1024) : max_entries_(max_entries) {}

  /// Media rows that stay, ascending, or nullptr. Valid until the next put().
  const std::vector<std::int32_t>* find(const MediaItem& item);
  /// Items without a fingerprint are not kept.
  void put(const MediaItem& item, std::span<const std::int32_t> kept);

 private:
  struct Entry {
    Fingerprint fingerprint;
    std::vector<std::int32_t> text_ids;
    ImageTokenOptions options;
    std::vector<std::int32_t> kept;
  };
  std::size_t max_entries_;
  std::list<Entry> entries_;  // used last first
};

}  // namespace triptych
