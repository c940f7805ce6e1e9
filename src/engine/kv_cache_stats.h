// Counts of a key/value cache at one moment.
#pragma once

#include <cstdint>

namespace triptych {

/// n_blocks = n_free_blocks + n_used_blocks + n_idle_blocks.
struct KvCacheStats {
  std::int64_t n_blocks = 0;
  std::int64_t n_free_blocks = 0;
  std::int64_t n_used_blocks = 0;    // held by sequences
  std::int64_t n_shared_blocks = 0;  // of these, by more than one sequence
  std::int64_t n_idle_blocks = 0;    // held by the prefix cache alone; given up when blocks are wanted
  std::int64_t n_cached_blocks = 0;  // held by the prefix cache, used or idle
  std::int64_t n_used_tokens = 0;    // rows of used blocks that hold keys and values, each once
  std::int64_t block_tokens = 0;     // rows of a block

  // Of the prefix cache, so far.
  std::int64_t n_queried_tokens = 0;  // of sequences when they started
  std::int64_t n_hit_tokens = 0;      // of these, found
  std::int64_t n_evicted_blocks = 0;

  /// Share of the used blocks' rows that hold nothing (yet): the ends of last pages.
  double fragmentation() const noexcept {
    return n_used_blocks == 0
               ? 0.0
               : 1.0 - static_cast<double>(n_used_tokens) / static_cast<double>(n_used_blocks * block_tokens);
  }
};

}  // namespace triptych
