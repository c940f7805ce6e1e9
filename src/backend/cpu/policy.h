// Which algorithm an operation takes. Every choice of this backend that changes bits is a function here: of
// the shape, the instruction sets, a policy and the kind of processor (tuning.h), of nothing else. How work
// is divided among threads and caches is not: it changes no bit.
#pragma once

#include <cstdint>

#include "backend/cpu/tuning.h"
#include "base/cpu_features.h"

namespace triptych {

/// What the CPU backend chooses by. Thresholds are where two algorithms cost the same; next to each stands
/// the benchmark that shows both sides.
struct CpuPolicy {
  /// The bits of a row depend on the row and on what it attends to, not on the other rows and sequences of
  /// the step: one order of sums for any number of rows. bf16_activations have no effect then, and int8
  /// attention over a cache needs int8_attention_min_rows query heads that share keys.
  bool batch_invariant = false;
  /// int4: products of many rows use the groups' scales, not 8-bit weights made of them.
  bool exact_groups = false;
  /// Products of many rows with bfloat16 weights round x to bfloat16, where the processor gains by it.
  bool bf16_activations = false;
  /// Attention over plain tensors (towers) in 8-bit integers, where the instruction set gains by it.
  bool int8_attention = false;

  /// Float weights are streamed up to here, beyond it packed and multiplied in tiles (linear_bench.cc).
  std::int64_t streamed_rows = 24;
  /// Fewer query rows of a head do not repay the packing of int8 keys and values (attention_bench.cc,
  /// BM_Decode).
  std::int64_t int8_attention_min_rows = 4;
  /// Nor do shorter segments, such as windows of 64 patches, repay the quantization of theirs
  /// (attention_bench.cc, BM_Attention).
  std::int64_t int8_attention_min_keys = 128;
  /// ... or with no more query rows than that.
  std::int64_t int8_attention_few_rows = 8;
};

namespace cpu {

enum class LinearAlgorithm {
  kStreamed,   // the weight as it is stored, once for a few rows
  kTiled,      // x and the weight packed, multiplied in tiles
  kTiledBf16,  // the same, x rounded to bfloat16
};
/// Of float weights. `pairs_bf16`: the weight is bfloat16 and can be read as pairs.
LinearAlgorithm linear_algorithm(std::int64_t n_rows, bool pairs_bf16, const CpuPolicy& policy,
                                 const CpuTuning& tuning) noexcept;

enum class Int4Algorithm {
  kStreamed,     // panels as they are stored, with the groups' own scales
  kRequantized,  // panels made 8-bit weights with one scale a column
};
Int4Algorithm int4_algorithm(std::int64_t n_rows, const CpuPolicy& policy, const CpuTuning& tuning) noexcept;

enum class AttentionAlgorithm { kFloat, kInt8 };
/// Whether products of int8 queries and keys are faster than float32 with these instruction sets.
bool gains_by_int8_attention(CpuFeatures features) noexcept;
/// Over a cache; `int8_cache`: its rows are int8; `group`: query heads per key/value head.
AttentionAlgorithm paged_attention_algorithm(bool int8_cache, std::int64_t group, CpuFeatures features,
                                             const CpuPolicy& policy) noexcept;
/// Of a segment of an attention over plain tensors: of its own sizes, not of its neighbours'. `n_query_rows`:
/// tokens times the query heads of a key/value head.
AttentionAlgorithm segment_attention_algorithm(std::int64_t n_query_rows, std::int64_t n_keys,
                                               CpuFeatures features, const CpuPolicy& policy) noexcept;
/// Of a block of query rows in an attention that takes `whole`.
AttentionAlgorithm block_attention_algorithm(AttentionAlgorithm whole, std::int64_t n_rows,
                                             const CpuPolicy& policy) noexcept;

}  // namespace cpu
}  // namespace triptych
