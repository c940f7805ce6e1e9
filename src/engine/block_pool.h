// Reference-counted blocks of a key/value cache: pages of the backend's KvCache, each of kBlockTokens tokens.
// Sequences that begin alike share the blocks of their beginning; a block is written by its only holder. The
// prefix cache is a holder too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace triptych {

inline constexpr int kBlockTokens = 64;
/// Blocks that n tokens take.
constexpr std::int64_t blocks_for(std::int64_t n_tokens) {
  return (n_tokens + kBlockTokens - 1) / kBlockTokens;
}

class BlockPool {
 public:
  /// All pages of the cache, free. Borrows it.
  explicit BlockPool(KvCache& cache);

  std::int64_t n_blocks() const noexcept { return static_cast<std::int64_t>(n_references_.size()); }
  std::int64_t n_free() const noexcept { return static_cast<std::int64_t>(free_.size()); }
  /// Blocks that only the prefix cache holds: free as soon as it lets go of them.
  std::int64_t n_idle() const noexcept { return n_idle_; }
  std::int32_t n_references(std::int32_t block) const {
    return n_references_[static_cast<std::size_t>(block)];
  }
  /// The same without the prefix cache's.
  std::int32_t n_users(std::int32_t block) const {
    return n_references(block) - (is_cached_[static_cast<std::size_t>(block)] ? 1 : 0);
  }

  /// A free block, with one reference; the one freed last first. Throws Error(kOutOfMemory) when none is
  /// free.
  std::int32_t allocate();
  /// One holder more of each.
  void share(std::span<const std::int32_t> blocks) noexcept;
  /// One holder less of each. A block without holders is free, and its memory is given back.
  void release(std::span<const std::int32_t> blocks) noexcept;
  /// A block of one's own that holds what `block` holds. Throws Error(kOutOfMemory).
  std::int32_t copy(std::int32_t block);
  /// Whether one of the references is the prefix cache's, which must be there at both calls.
  void set_cached(std::int32_t block, bool is_cached) noexcept;

 private:
  KvCache& cache_;
  std::vector<std::int32_t> n_references_;  // by block
  std::vector<bool> is_cached_;             // by block
  std::int64_t n_idle_ = 0;
  std::vector<std::int32_t> free_;
};

}  // namespace triptych
