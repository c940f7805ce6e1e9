// What the tower made of pictures seen lately, so that the next question about one need not encode it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "models/model.h"
#include "tensor/tensor.h"

namespace triptych {

class VisionEmbeddingCache {
 public:
  /// Holds at most max_bytes of rows in the memory of the backend, which it borrows; 0 keeps nothing.
  VisionEmbeddingCache(Backend& backend, std::size_t max_bytes) : backend_(backend), max_bytes_(max_bytes) {}

  /// Rows [n_tokens, D] of an item with this content, or nullptr. Valid until the next put().
  const Tensor* find(const MediaItem& item);
  /// Keeps a copy of rows that are operands; the ones not used for longest make room. Items without a
  /// fingerprint are not kept.
  void put(const MediaItem& item, TensorView rows);

  bool enabled() const noexcept { return max_bytes_ > 0; }
  std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  struct Entry {
    Fingerprint fingerprint;
    std::vector<std::int32_t> text_ids;
    Tensor rows;
  };
  Backend& backend_;
  std::size_t max_bytes_;
  std::size_t size_bytes_ = 0;
  std::list<Entry> entries_;  // used last first
};

}  // namespace triptych
