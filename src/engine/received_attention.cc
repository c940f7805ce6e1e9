#include "engine/received_attention.h"

#include "engine/sequence.h"

namespace triptych {

void ReceivedAttention::add(std::size_t index, Sequence& s, std::int64_t n_rows) {
  const std::vector<ImageTokenKeep::Rows> rows = s.keep->listening_rows(s, n_rows);
  if (rows.empty()) return;
  const std::span<float> received = s.keep->begin_step(s.n_computed + n_rows);
  for (const ImageTokenKeep::Rows& one : rows)
    parts_.push_back({index, one.first - s.n_computed, one.end - one.first, received});
}

void ReceivedAttention::on_cache_attention(Backend& backend, const KvCache& cache, int layer,
                                           std::span<const KvSequence> sequences, const CacheAttention& how,
                                           const TensorView& q) {
  for (const Part& part : parts_) {
    KvSequence s = sequences[part.index];
    s.n_context += static_cast<std::int32_t>(part.first_row + part.n_rows) - s.n_rows;
    s.first_row += static_cast<std::int32_t>(part.first_row);
    s.n_rows = static_cast<std::int32_t>(part.n_rows);
    backend.add_received_attention(cache, layer, s, how, q,
                                   part.received.first(static_cast<std::size_t>(s.n_context)));
  }
}

}  // namespace triptych
