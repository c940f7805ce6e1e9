// Attention in 8-bit integers over rows of kernels/kv_rows (kInt8): many query rows of one head. Queries are
// quantized by rows; see kernels/attention_s8 for how the weights of the softmax keep 16 bits.
#pragma once

#include <cstddef>

#include "backend/cpu/runtime.h"

namespace triptych::cpu {

/// Query rows of a block at most: each packs the keys and values it sees, so larger blocks pack less.
inline constexpr int kS8AttentionMaxRows = 192;

/// Floats of scratch memory a block needs.
std::size_t attention_s8_scratch_floats(int head_dim);

/// As runtime.attention.attention, with 8-bit products. block.kv.codec is set and its code kInt8;
/// up to kS8AttentionMaxRows rows.
void attention_s8(const Runtime& runtime, const kernels::AttentionBlock& block);

}  // namespace triptych::cpu
