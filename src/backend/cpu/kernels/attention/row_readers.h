// Key and value rows, as elements or as codes of kv_rows.h, as vectors of floats; for attention_body.h. A
// reader is made for one row; at(i, n) gives elements i .. i + n, n <= kLanes, zeros beyond.
#pragma once

#include "backend/cpu/kernels/kv_rows/kv_rows.h"

namespace triptych::kernels {
namespace {

#if !defined(TRIPTYCH_HAS_BYTE_LOADS)
// For instruction sets without their own: one by one.
TRIPTYCH_INLINE Vf vload_s8(const void* p, int n) {
  float v[kLanes] = {};
  for (int i = 0; i < n; ++i) v[i] = static_cast<float>(static_cast<const int8_t*>(p)[i]);
  return vload(v);
}
TRIPTYCH_INLINE Vf vload_f8_256th(const void* p, int n) {
  float v[kLanes] = {};
  for (int i = 0; i < n; ++i) {
    const uint32_t code = static_cast<const uint8_t*>(p)[i];
    const uint32_t magnitude = code & 0x7fU;
    const uint32_t bits = (magnitude << 20) + (112U << 23);
    float value;
    memcpy(&value, &bits, sizeof value);
    if (magnitude < 8) value = static_cast<float>(static_cast<int>(magnitude)) * 0x1p-17F;
    v[i] = (code & 0x80U) != 0 ? -value : value;
  }
  return vload(v);
}
template <bool kHigh>
TRIPTYCH_INLINE Vf vload_u4(const void* p, int n) {
  float v[kLanes] = {};
  for (int i = 0; i < n; ++i) {
    const int byte = static_cast<const uint8_t*>(p)[i];
    v[i] = static_cast<float>(kHigh ? byte >> 4 : byte & 15);
  }
  return vload(v);
}
#endif

/// A bfloat16 number beside a row's codes.
TRIPTYCH_INLINE float load_bf16(const char* at) {
  uint16_t half;
  memcpy(&half, at, sizeof half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/// kHasFactor: what at() gives has still to be multiplied by `factor`.
template <ElementType T>
struct PlainRow {
  static constexpr bool kHasFactor = false;
  static constexpr float factor = 1;
  const void* row;
  TRIPTYCH_INLINE PlainRow(const void* at_row, int) : row(at_row) {}
  TRIPTYCH_INLINE Vf at(int i, int n) const {
    return n == kLanes ? vload_as<T>(row, i) : vload_as_n<T>(row, i, n);
  }
};

// kInt8 and kFp8.
template <KvCode C>
struct ScaledRow {
  static constexpr bool kHasFactor = true;
  const char* codes;
  float factor;
  TRIPTYCH_INLINE ScaledRow(const void* row, int head_dim) : codes(static_cast<const char*>(row)) {
    factor = load_bf16(codes + kv_scale_at(head_dim));
    if constexpr (C == KvCode::kFp8) factor *= 256;
  }
  TRIPTYCH_INLINE Vf at(int i, int n) const {
    return C == KvCode::kFp8 ? vload_f8_256th(codes + i, n) : vload_s8(codes + i, n);
  }
};

struct GroupedRow {  // kInt4
  static constexpr bool kHasFactor = false;
  static constexpr float factor = 1;
  const char* groups;
  const char* codes;
  TRIPTYCH_INLINE GroupedRow(const void* row, int head_dim)
      : groups(static_cast<const char*>(row)), codes(groups + kv_codes_at(head_dim)) {}
  // Padding of the last group is not zero: what multiplies it is.
  TRIPTYCH_INLINE Vf at(int i, int) const {
    const char* group = groups + i / kKvGroup * 4;
    const char* from = codes + i / kKvBlock * 16 + i % 16;
    const Vf code = i % kKvBlock < 16 ? vload_u4<false>(from, kLanes) : vload_u4<true>(from, kLanes);
    return vfma(code, vset(load_bf16(group)), vset(load_bf16(group + 2)));
  }
};

}  // namespace
}  // namespace triptych::kernels
