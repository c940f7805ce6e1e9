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

/// Addresses of key and value rows [begin, begin + n), n <= kKeyBlock: one division a page instead of two a
/// row.
struct BlockRows {
  const void* keys[kKeyBlock];
  const void* values[kKeyBlock];
  const uint16_t* offsets[kKeyBlock];  // of the keys' pages; null where the cache has none
};
inline void find_rows(const KeyValueRows& kv, ptrdiff_t begin, int n, BlockRows* rows) {
  for (int j = 0; j < n;) {
    const char* key = key_row(kv, begin + j);
    const char* value = value_row(kv, begin + j);
    const ptrdiff_t left = kv.pages == nullptr ? n - j : kv.page_tokens - (begin + j) % kv.page_tokens;
    const ptrdiff_t row = kv.pages == nullptr ? begin + j : (begin + j) % kv.page_tokens;
    const auto* offset = reinterpret_cast<const uint16_t*>(key - row * kv.k_stride - kv.offset_bytes);
    for (ptrdiff_t i = 0; i < left && j < n; ++i, ++j) {
      rows->offsets[j] = kv.offset_bytes != 0 ? offset : nullptr;
      rows->keys[j] = key + i * kv.k_stride;
      rows->values[j] = value + i * kv.v_stride;
    }
  }
}

/// Rows of codes become floats in `keys` and `values` ([n][stride] each), and `rows` points there.
inline void decode_rows(const KeyValueRows& kv, int n, int head_dim, float* keys, float* values,
                        ptrdiff_t stride, BlockRows* rows) {
  for (int j = 0; j < n; ++j) {
    const uint16_t* offset = rows->offsets[j];
    kv.codec->decode(kv.code, head_dim, static_cast<const uint8_t*>(rows->keys[j]), offset,
                     keys + j * stride);
    kv.codec->decode(kv.code, head_dim, static_cast<const uint8_t*>(rows->values[j]), nullptr,
                     values + j * stride);
    rows->keys[j] = keys + j * stride;
    rows->values[j] = values + j * stride;
  }
}

/// Whether some page of n keys takes large channels out.
inline bool has_offsets(const KeyValueRows& kv, const BlockRows& rows, int n, int head_dim) {
  if (kv.offset_bytes == 0) return false;
  const uint16_t* seen = nullptr;
  for (int j = 0; j < n; ++j) {
    if (rows.offsets[j] == seen) continue;
    seen = rows.offsets[j];
    for (int d = 0; d < head_dim; ++d)
      if (seen[d] != 0) return true;
  }
  return false;
}

/// First key that row `row` sees.
inline int first_key(const AttentionBlock& block, int row) {
  return block.first_visible != nullptr ? block.first_visible[row] : 0;
}

inline ptrdiff_t round_up(ptrdiff_t n, ptrdiff_t to) { return (n + to - 1) / to * to; }

}  // namespace
}  // namespace triptych::kernels
