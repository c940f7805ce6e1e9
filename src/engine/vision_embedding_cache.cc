#include "engine/vision_embedding_cache.h"

#include <algorithm>

#include "backend/memory.h"

namespace triptych {

const Tensor* VisionEmbeddingCache::find(const MediaItem& item) {
  if (item.fingerprint.empty()) return nullptr;
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.fingerprint == item.fingerprint && e.text_ids == item.text_ids;
  });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return &entries_.front().rows;
}

void VisionEmbeddingCache::put(const MediaItem& item, TensorView rows) {
  const std::size_t n_bytes = rows.size_bytes();
  if (item.fingerprint.empty() || n_bytes > max_bytes_ || find(item) != nullptr) return;
  while (size_bytes_ + n_bytes > max_bytes_) {
    size_bytes_ -= entries_.back().rows.view().size_bytes();
    entries_.pop_back();
  }
  entries_.push_front({item.fingerprint, item.text_ids, copy_operand(backend_, rows)});
  size_bytes_ += n_bytes;
}

}  // namespace triptych
