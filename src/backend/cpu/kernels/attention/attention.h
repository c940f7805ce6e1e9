// Attention of a block of query rows over one head's keys and values, by the online softmax (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022): keys
// are taken in blocks of a fixed size, so scratch memory does not depend on their number.
//
// y = softmax(scale * q K^T) V, row i over its first n_visible[i] keys, or those of them from
// first_visible[i] on. A row that sees no key gives zeros, as does one whose scores are all -infinity. Scores
// of any finite size are safe (the largest is subtracted). A NaN in a visible score or value makes the row
// NaN; so can a non-finite value behind its last visible key within the same block of keys, or before its
// first one, from the first block on that any row of the call sees.
//
// Up to kAttentionFewRows rows are computed by dot products, more by tiles, which add in the same order: the
// bits of a row do not depend on the rows beside it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels/element_type.h"
#include "backend/cpu/kernels/kv_rows/kv_rows.h"

namespace triptych::kernels {

/// Keys and values of one head. Row j is at k + j * k_stride, or with pages at
/// page_data[pages[j / page_tokens]] + k_in_page + (j % page_tokens) * k_stride; v likewise. Strides in
/// bytes.
struct KeyValueRows {
  const char* k;
  const char* v;
  ptrdiff_t k_stride;
  ptrdiff_t v_stride;
  const int32_t* pages;  // null: one plain array
  int page_tokens;
  const char* const* page_data;
  ptrdiff_t k_in_page;
  ptrdiff_t v_in_page;
  ElementType type;
  // Rows of kv_rows.h instead of elements, decoded a block of keys at a time (`type` is kF32 then).
  const KvRowKernels* codec = nullptr;
  KvCode code = KvCode::kInt8;
  // So far before a page's first key are its KvOffsets, kv_max_offsets(head_dim); 0: none.
  ptrdiff_t offset_bytes = 0;
};

constexpr int kAttentionMaxRows = 128;  // of a block, that any implementation takes
constexpr int kAttentionFewRows = 8;

struct AttentionBlock {
  int n_rows;  // 1 .. max_rows of the implementation
  int head_dim;
  const float* const* q;     // n_rows pointers to head_dim floats
  float* const* y;           // likewise
  const int32_t* n_visible;  // keys each row sees, >= 0
  float scale;
  KeyValueRows kv;
  float* scratch;  // attention_scratch_floats(head_dim), 64-byte aligned
  // Of each row that sees a key, the first, < n_visible (sliding windows); null: they see all from 0 on.
  const int32_t* first_visible = nullptr;
};

/// Enough for every implementation.
ptrdiff_t attention_scratch_floats(int head_dim);

struct AttentionKernels {
  const char* name;
  void (*attention)(const AttentionBlock& block);
  int max_rows = kAttentionMaxRows;  // of a block
};

const AttentionKernels& attention_kernels(CpuFeatures features);

extern const AttentionKernels kAttentionScalar;
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;
extern const AttentionKernels kAttentionNeon;

}  // namespace triptych::kernels
