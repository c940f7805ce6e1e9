// Gathers, while a step runs, the attention that keys in the cache receive from rows of text, for sequences
// that choose their image tokens by it. Row by row, in sums of whole numbers: the choice is the same however
// a prompt is cut into steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/exec_context.h"
#include "engine/image_token_keep.h"

namespace triptych {

class ReceivedAttention final : public CacheAttentionListener {
 public:
  /// For a new step.
  void clear() { parts_.clear(); }
  /// The step's sequence `index` is `s` with its next n_rows rows. `s` must have an ImageTokenKeep; nothing
  /// is noted when it wants no attention of these rows.
  void add(std::size_t index, Sequence& s, std::int64_t n_rows);
  bool empty() const noexcept { return parts_.empty(); }

  void on_cache_attention(Backend& backend, const KvCache& cache, int layer,
                          std::span<const KvSequence> sequences, const CacheAttention& how,
                          const TensorView& q) override;

 private:
  struct Part {
    std::size_t index = 0;
    std::int64_t first_row = 0;  // of the sequence's rows in the step
    std::int64_t n_rows = 0;
    std::span<std::int64_t> received;  // by token of the sequence, in units of 2^-32
  };
  std::vector<Part> parts_;
  std::vector<float> of_row_;
};

}  // namespace triptych
