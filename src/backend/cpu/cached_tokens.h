// The tokens of a paged cache, for those who keep only some of them: what says which matter, and moving those
// that stay together.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/attention.h"
#include "backend/cpu/runtime.h"

namespace triptych::cpu {

// As Backend says. Bits do not depend on the number of threads.

void key_norms(Runtime& runtime, const CpuKvCache& cache, int layer, std::span<const std::int32_t> slots,
               std::span<float> norms);

/// Uses the shared and the threads' scratch.
void add_received_attention(Runtime& runtime, const CpuKvCache& cache, int layer, const KvSequence& s,
                            const CacheAttention& how, const TensorView& q, std::span<float> received);

void move_cached_tokens(Runtime& runtime, CpuKvCache& cache, std::span<const std::int32_t> from,
                        std::span<const std::int32_t> to);

}  // namespace triptych::cpu
