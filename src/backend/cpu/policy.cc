#include "backend/cpu/policy.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::cpu {

LinearAlgorithm linear_algorithm(std::int64_t n_rows, bool pairs_bf16, const CpuPolicy& policy,
                                 const CpuTuning& tuning) noexcept {
  if (policy.batch_invariant || n_rows <= policy.streamed_rows) return LinearAlgorithm::kStreamed;
  const bool rounds = policy.bf16_activations && pairs_bf16 && tuning.bf16_gains;
  return rounds ? LinearAlgorithm::kTiledBf16 : LinearAlgorithm::kTiled;
}

Int4Algorithm int4_algorithm(std::int64_t n_rows, const CpuPolicy& policy, const CpuTuning& tuning) noexcept {
  const bool streamed = policy.batch_invariant || policy.exact_groups || n_rows <= tuning.int4_streamed_rows;
  return streamed ? Int4Algorithm::kStreamed : Int4Algorithm::kRequantized;
}

// Dot products of bytes gain everywhere. 16-bit products of AVX2 gain 1.2 times over its floats, but nothing
// over those of AVX-512.
bool gains_by_int8_attention(CpuFeatures features) noexcept {
  if (features.has_all(kernels::kNeedsDotprod) || features.has_all(kernels::kNeedsAvx512Vnni)) return true;
  return features.has_all(kernels::kNeedsAvx2) && !features.has(CpuFeature::kAvx512Core);
}

AttentionAlgorithm paged_attention_algorithm(bool int8_cache, std::int64_t group, CpuFeatures features,
                                             const CpuPolicy& policy) noexcept {
  // A token alone has as many rows as query heads share its keys.
  const bool any_rows = !policy.batch_invariant || group >= policy.int8_attention_min_rows;
  const bool int8 = int8_cache && any_rows && gains_by_int8_attention(features);
  return int8 ? AttentionAlgorithm::kInt8 : AttentionAlgorithm::kFloat;
}

AttentionAlgorithm segment_attention_algorithm(std::int64_t n_query_rows, std::int64_t n_keys,
                                               CpuFeatures features, const CpuPolicy& policy) noexcept {
  const bool int8 = policy.int8_attention && gains_by_int8_attention(features) &&
                    n_query_rows > policy.int8_attention_few_rows && n_keys >= policy.int8_attention_min_keys;
  return int8 ? AttentionAlgorithm::kInt8 : AttentionAlgorithm::kFloat;
}

AttentionAlgorithm block_attention_algorithm(AttentionAlgorithm whole, std::int64_t n_rows,
                                             const CpuPolicy& policy) noexcept {
  return policy.batch_invariant || n_rows >= policy.int8_attention_min_rows ? whole
                                                                            : AttentionAlgorithm::kFloat;
}

}  // namespace triptych::cpu
