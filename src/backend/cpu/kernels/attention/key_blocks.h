// Where a key or value row lies, and the scratch sizes shared by the implementations of attention.h. Plain
// C++: included by files for one instruction set.
#pragma once

#include "backend/cpu/kernels/attention/attention.h"

namespace triptych::kernels {
namespace {

constexpr int kKeyBlock = 112;    // keys taken at once: a multiple of the tile heights 14 and (rounded up) 6
constexpr int kPanelFloats = 32;  // widest panel of query rows

inline const char* key_row(const KeyValueRows& kv, ptrdiff_t j) {
  if (kv.pages == nullptr) return kv.k + j * kv.k_stride;
  return kv.page_data[kv.pages[j / kv.page_tokens]] + kv.k_in_page + (j % kv.page_tokens) * kv.k_stride;
}

inline const char* value_row(const KeyValueRows& kv, ptrdiff_t j) {
  if (kv.pages == nullptr) return kv.v + j * kv.v_stride;
  return kv.page_data[kv.pages[j / kv.page_tokens]] + kv.v_in_page + (j % kv.page_tokens) * kv.v_stride;
}

inline float of_bf16_bits(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float x;
  __builtin_memcpy(&x, &wide, sizeof x);
  return x;
}

/// Offsets of the page whose first key is given; null when it has none.
inline const KvOffset* page_offsets(const KeyValueRows& kv, const char* first_key) {
  if (kv.offset_bytes == 0) return nullptr;
  const auto* offsets = reinterpret_cast<const KvOffset*>(first_key - kv.offset_bytes);
  return offsets->value != 0 ? offsets : nullptr;
}

/// q offsets, for a query row.
inline float offset_product(const float* q, const KvOffset* offsets, int head_dim) {
  float sum = 0.0F;
  for (ptrdiff_t i = 0; i < kv_max_offsets(head_dim) && offsets[i].value != 0; ++i)
    sum += q[offsets[i].channel] * of_bf16_bits(offsets[i].value);
  return sum;
}

/// Addresses of key and value rows [begin, begin + n), n <= kKeyBlock: one division a page instead of two a
/// row.
struct BlockRows {
  const void* keys[kKeyBlock];
  const void* values[kKeyBlock];
  const KvOffset* offsets[kKeyBlock];  // of the keys' pages, kv_max_offsets each; null where a page has none
};
inline void find_rows(const KeyValueRows& kv, ptrdiff_t begin, int n, BlockRows* rows) {
  for (int j = 0; j < n;) {
    const char* key = key_row(kv, begin + j);
    const char* value = value_row(kv, begin + j);
    const ptrdiff_t left = kv.pages == nullptr ? n - j : kv.page_tokens - (begin + j) % kv.page_tokens;
    const ptrdiff_t row = kv.pages == nullptr ? begin + j : (begin + j) % kv.page_tokens;
    const KvOffset* offsets = page_offsets(kv, key - row * kv.k_stride);
    for (ptrdiff_t i = 0; i < left && j < n; ++i, ++j) {
      rows->offsets[j] = offsets;
      rows->keys[j] = key + i * kv.k_stride;
      rows->values[j] = value + i * kv.v_stride;
    }
  }
}

/// Rows of codes become floats in `keys` and `values` ([n][stride] each), and `rows` points there.
inline void decode_rows(const KeyValueRows& kv, int n, int head_dim, float* keys, float* values,
                        ptrdiff_t stride, BlockRows* rows) {
  for (int j = 0; j < n; ++j) {
    float* key = keys + j * stride;
    kv.codec->decode(kv.code, head_dim, static_cast<const uint8_t*>(rows->keys[j]), nullptr, key);
    const KvOffset* offsets = rows->offsets[j];
    for (ptrdiff_t i = 0; offsets != nullptr && i < kv_max_offsets(head_dim) && offsets[i].value != 0; ++i)
      key[offsets[i].channel] += of_bf16_bits(offsets[i].value);
    kv.codec->decode(kv.code, head_dim, static_cast<const uint8_t*>(rows->values[j]), nullptr,
                     values + j * stride);
    rows->keys[j] = key;
    rows->values[j] = values + j * stride;
  }
}

/// Whether some page of n keys takes large channels out.
inline bool has_offsets(const BlockRows& rows, int n) {
  for (int j = 0; j < n; ++j)
    if (rows.offsets[j] != nullptr) return true;
  return false;
}

/// First key that row `row` sees.
inline int first_key(const AttentionBlock& block, int row) {
  return block.first_visible != nullptr ? block.first_visible[row] : 0;
}

inline ptrdiff_t round_up(ptrdiff_t n, ptrdiff_t to) { return (n + to - 1) / to * to; }

}  // namespace
}  // namespace triptych::kernels
