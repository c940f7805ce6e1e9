#include "engine/received_attention.h"

#include <cmath>

#include "engine/sequence.h"

namespace triptych {
namespace {

// A row gives each head 1; of 2^20 rows, heads and layers the sum stays within 64 bits.
constexpr double kUnits = 4294967296.0;  // 2^32

}  // namespace

void ReceivedAttention::add(std::size_t index, Sequence& s, std::int64_t n_rows) {
  const std::vector<ImageTokenKeep::Rows> rows = s.keep->listening_rows(s, n_rows);
  s.keep->begin_step(0);  // of a step that failed
  if (rows.empty()) return;
  const std::span<std::int64_t> received = s.keep->begin_step(s.n_computed + n_rows);
  for (const ImageTokenKeep::Rows& one : rows)
    parts_.push_back({index, one.first - s.n_computed, one.end - one.first, received});
}

void ReceivedAttention::on_cache_attention(Backend& backend, const KvCache& cache, int layer,
                                           std::span<const KvSequence> sequences, const CacheAttention& how,
                                           const TensorView& q) {
  for (const Part& part : parts_) {
    for (std::int64_t row = part.first_row; row < part.first_row + part.n_rows; ++row) {
      KvSequence s = sequences[part.index];
      s.n_context += static_cast<std::int32_t>(row + 1) - s.n_rows;
      s.first_row += static_cast<std::int32_t>(row);
      s.n_rows = 1;
      of_row_.assign(static_cast<std::size_t>(s.n_context), 0.0F);
      backend.add_received_attention(cache, layer, s, how, q, of_row_);
      for (std::size_t t = 0; t < of_row_.size(); ++t)
        part.received[t] += std::llround(static_cast<double>(of_row_[t]) * kUnits);
    }
  }
}

}  // namespace triptych
