// What a step of an engine did, and how the engine stands behind it: for reports and metrics.
#pragma once

#include <cstddef>
#include <cstdint>

namespace triptych {

struct StepStats {
  // The batch of the language model.
  std::int64_t n_sequences = 0;
  std::int64_t n_prompt_rows = 0;  // tokens of prompts that were computed, those computed again included
  std::int64_t n_decode_rows = 0;  // tokens of answers
  std::int64_t n_padded_rows = 0;  // rows of the batch that stand for no token
  // Towers.
  std::int64_t n_media_encoded = 0;
  std::int64_t n_patches = 0;         // that towers multiplied
  std::int64_t n_padded_patches = 0;  // of them, those of no picture
  // Afterwards.
  std::int64_t n_running = 0;
  std::int64_t n_waiting = 0;
  std::int64_t n_used_blocks = 0;  // of the key/value cache, those kept for later requests included
  std::int64_t n_blocks = 0;
  std::size_t vision_cache_bytes = 0;
};

/// Since the engine was made.
struct EngineTotals {
  std::int64_t n_preemptions = 0;
  std::int64_t n_media_encoded = 0;
  std::int64_t n_prefix_queries = 0;  // tokens of prompts that were looked for in the prefix cache
  std::int64_t n_prefix_hits = 0;     // of them, found
  std::int64_t n_vision_queries =
      0;  // pictures and videos that were looked for in the cache of the tower's rows
  std::int64_t n_vision_hits = 0;
  double vision_saved_ms = 0;  // tower time of those found, at the mean time of a row so far
};

}  // namespace triptych
