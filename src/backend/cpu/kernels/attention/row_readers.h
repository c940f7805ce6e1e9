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

#if !defined(TRIPTYCH_HAS_SUM4)
TRIPTYCH_INLINE void vsum4(const Vf* v, float* sums) {
  for (int i = 0; i < 4; ++i) sums[i] = vsum(v[i]);
}
#endif

template <ElementType T>
struct PlainRow {
  static constexpr bool kHasFactor = false;
  static constexpr float factor = 1;
  const void* row;
  TRIPTYCH_INLINE PlainRow(const void* at_row, const uint16_t*, int) : row(at_row) {}
  TRIPTYCH_INLINE Vf at(int i, int n) const {
    return n == kLanes ? vload_as<T>(row, i) : vload_as_n<T>(row, i, n);
  }
};

TRIPTYCH_INLINE Vf load_offset(const uint16_t* offset, int i, int n) {
  return n == kLanes ? vload_as<ElementType::kBF16>(offset, i) : vload_as_n<ElementType::kBF16>(offset, i, n);
}

// kInt8 and kFp8.
template <KvCode C, bool kOffset>
struct ScaledRow {
  static constexpr bool kHasFactor = !kOffset;
  const char* codes;
  const uint16_t* offset;
  float factor;
  TRIPTYCH_INLINE ScaledRow(const void* row, const uint16_t* page_offset, int head_dim)
      : codes(static_cast<const char*>(row)), offset(page_offset) {
    memcpy(&factor, codes + (head_dim + 3) / 4 * 4, sizeof factor);
    if constexpr (C == KvCode::kFp8) factor *= 256;
  }
  TRIPTYCH_INLINE Vf at(int i, int n) const {
    const Vf code = C == KvCode::kFp8 ? vload_f8_256th(codes + i, n) : vload_s8(codes + i, n);
    if constexpr (kOffset) return vfma(code, vset(factor), load_offset(offset, i, n));
    return code;
  }
};

template <bool kOffset>
struct GroupedRow {  // kInt4
  static constexpr bool kHasFactor = false;
  static constexpr float factor = 1;
  const char* groups;
  const uint16_t* offset;
  TRIPTYCH_INLINE GroupedRow(const void* row, const uint16_t* page_offset, int)
      : groups(static_cast<const char*>(row)), offset(page_offset) {}
  TRIPTYCH_INLINE Vf at(int i, int n) const {
    const char* group = groups + i / kKvGroup * kKvGroupBytes;
    uint32_t halves;
    memcpy(&halves, group, sizeof halves);
    const uint32_t step_bits = halves << 16;
    const uint32_t low_bits = halves & 0xffff0000U;
    float step;
    float low;
    memcpy(&step, &step_bits, sizeof step);
    memcpy(&low, &low_bits, sizeof low);
    const char* codes = group + 4 + i % 16;
    const Vf code = i % kKvGroup < 16 ? vload_u4<false>(codes, kLanes) : vload_u4<true>(codes, kLanes);
    const Vf v = vfma(code, vset(step), vset(low));
    // Padding of the last group is not zero: what multiplies it is.
    if constexpr (kOffset) return vadd(v, load_offset(offset, i, n));
    return v;
  }
};

}  // namespace
}  // namespace triptych::kernels
