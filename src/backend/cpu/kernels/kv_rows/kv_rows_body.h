// The implementation of kv_rows.h in plain loops, which compilers turn into vector code: each instruction
// set's file includes it. No fused operations and no library calls, so the bits are the same everywhere.
#pragma once

#include "backend/cpu/kernels/kv_rows/kv_rows.h"

namespace triptych::kernels {
namespace {

inline uint32_t bits_of(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, sizeof u);
  return u;
}
inline float float_of(uint32_t u) {
  float x;
  __builtin_memcpy(&x, &u, sizeof x);
  return x;
}
inline float of_bf16(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }
inline uint16_t to_bf16(float x) {  // finite values only
  const uint32_t u = bits_of(x);
  return static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}

// To nearest, ties to even, for |x| < 2^22.
inline float round_even(float x) { return (x + 12582912.0F) - 12582912.0F; }

constexpr uint32_t kInfinityBits = 0x7f800000U;
constexpr float kSmallest = 1e-34F;  // below, an inverse could be infinite: such rows are zero

void choose_offsets(ptrdiff_t n, const float* x, KvOffset* offsets) {
  // Sixteen sums in a fixed order: the bits do not depend on the width of vectors.
  double sums[16] = {};
  ptrdiff_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int lane = 0; lane < 16; ++lane) {
      const double v = static_cast<double>(x[i + lane]);
      sums[lane] += v * v;
    }
  for (int lane = 0; i < n; ++i, ++lane) sums[lane] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double rest = 0;  // squares of what was not taken
  for (int lane = 0; lane < 16; ++lane) rest += sums[lane];
  const ptrdiff_t most = kv_max_offsets(n);
  ptrdiff_t n_taken = 0;
  for (; n_taken < most; ++n_taken) {
    ptrdiff_t at = -1;
    double largest = 0;
    for (ptrdiff_t j = 0; j < n; ++j) {
      bool taken = false;
      for (ptrdiff_t t = 0; t < n_taken; ++t) taken = taken || offsets[t].channel == j;
      const double square = static_cast<double>(x[j]) * static_cast<double>(x[j]);
      if (taken || !(square > largest)) continue;
      largest = square;
      at = j;
    }
    rest -= largest;
    const double mean = (rest > 0 ? rest : 0) / static_cast<double>(n - n_taken - 1);
    // What a bfloat16 cannot hold is no constant, nor are NaN and infinity.
    if (at < 0 || !(largest > 16 * mean) || !(largest < 1e76)) break;
    offsets[n_taken] = {static_cast<uint16_t>(at), to_bf16(x[at])};
    if (offsets[n_taken].value == 0) break;
  }
  for (; n_taken < most; ++n_taken) offsets[n_taken] = {0, 0};
}

inline float less_offset(const float* x, const uint16_t* offset, ptrdiff_t i) {
  return offset != nullptr ? x[i] - of_bf16(offset[i]) : x[i];
}

// The bits of the largest magnitude: infinity and NaN are larger than any number.
template <bool kOffset>
uint32_t largest_bits(ptrdiff_t n, const float* x, const uint16_t* offset) {
  uint32_t largest = 0;
  for (ptrdiff_t i = 0; i < n; ++i) {
    const uint32_t u = bits_of(kOffset ? x[i] - of_bf16(offset[i]) : x[i]) & 0x7fffffffU;
    largest = u > largest ? u : largest;
  }
  return largest;
}

// E4M3 of |x| <= 448: to nearest even; below 2^-6 multiples of 2^-9.
inline uint8_t to_f8(float x) {
  const uint32_t u = bits_of(x);
  const uint32_t magnitude = u & 0x7fffffffU;
  const uint32_t normal = (magnitude - (120U << 23) + 0x7ffffU + ((magnitude >> 20) & 1U)) >> 20;
  const uint32_t subnormal = bits_of(float_of(magnitude) + 16384.0F) - bits_of(16384.0F);
  const uint32_t code = magnitude < (121U << 23) ? subnormal : normal;
  return static_cast<uint8_t>(code | (u >> 24 & 0x80U));
}
inline float of_f8(uint8_t code) {
  const uint32_t magnitude = code & 0x7fU;
  const float normal = float_of((magnitude << 20) + (120U << 23));
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0.001953125F;
  const float value = magnitude < 8 ? subnormal : normal;
  return float_of(bits_of(value) | static_cast<uint32_t>(code & 0x80U) << 24);
}

// One scale a row.
template <KvCode kCode, bool kOffset>
void encode_row(ptrdiff_t n, const float* x, const uint16_t* offset, uint8_t* row) {
  constexpr float kTop = kCode == KvCode::kInt8 ? 127.0F : 448.0F;
  const uint32_t bits = largest_bits<kOffset>(n, x, offset);
  const float largest = float_of(bits);
  const bool bad = bits >= kInfinityBits;
  const bool nothing = bad || largest < kSmallest;
  const uint16_t scale = bad ? uint16_t{0x7fc0} : (nothing ? uint16_t{0} : to_bf16(largest / kTop));
  const float inverse = nothing ? 0.0F : 1.0F / of_bf16(scale);
  const ptrdiff_t padded = kv_scale_at(n);
  if (nothing) {
    for (ptrdiff_t i = 0; i < n; ++i) row[i] = 0;
  } else {
    for (ptrdiff_t i = 0; i < n; ++i) {
      float v = (kOffset ? x[i] - of_bf16(offset[i]) : x[i]) * inverse;
      v = v > kTop ? kTop : v;
      v = v < -kTop ? -kTop : v;
      if constexpr (kCode == KvCode::kInt8) {
        row[i] = static_cast<uint8_t>(static_cast<int8_t>(static_cast<int32_t>(round_even(v))));
      } else {
        row[i] = to_f8(v);
      }
    }
  }
  for (ptrdiff_t i = n; i < padded; ++i) row[i] = 0;
  __builtin_memcpy(row + padded, &scale, sizeof scale);
}

template <KvCode kCode, bool kOffset>
void decode_row(ptrdiff_t n, const uint8_t* row, const uint16_t* offset, float* y) {
  uint16_t half;
  __builtin_memcpy(&half, row + kv_scale_at(n), sizeof half);
  const float scale = of_bf16(half);
  for (ptrdiff_t i = 0; i < n; ++i) {
    float v;
    if constexpr (kCode == KvCode::kInt8) {
      v = static_cast<float>(static_cast<int8_t>(row[i])) * scale;
    } else {
      v = of_f8(row[i]) * scale;
    }
    y[i] = kOffset ? v + of_bf16(offset[i]) : v;
  }
}

// One group of up to 64 elements: its step and minimum, and the bytes of its codes.
void encode_group(ptrdiff_t n, const float* x, const uint16_t* offset, uint8_t* range, uint8_t* to) {
  float v[kKvGroup];
  for (ptrdiff_t i = 0; i < kKvGroup; ++i) v[i] = i < n ? less_offset(x, offset, i) : 0.0F;
  float low = v[0];
  float high = v[0];
  uint32_t largest = 0;
  for (ptrdiff_t i = 0; i < n; ++i) {
    low = v[i] < low ? v[i] : low;
    high = v[i] > high ? v[i] : high;
    const uint32_t u = bits_of(v[i]) & 0x7fffffffU;
    largest = u > largest ? u : largest;
  }
  // Bits beyond the largest bfloat16 would round to infinity.
  const bool bad = largest >= 0x7f7f8000U || bits_of(high - low) >= kInfinityBits;
  const uint16_t step_half = bad ? uint16_t{0x7fc0} : to_bf16((high - low) / 15.0F);
  const uint16_t low_half = bad ? uint16_t{0} : to_bf16(low);
  const float step = of_bf16(step_half);
  const float base = of_bf16(low_half);
  const float inverse = bad || step < kSmallest ? 0.0F : 1.0F / step;
  uint8_t codes[kKvGroup];
  for (ptrdiff_t i = 0; i < kKvGroup; ++i) {
    float c = bad ? 0.0F : (v[i] - base) * inverse;
    c = c < 15.0F ? c : 15.0F;
    c = c > 0.0F ? c : 0.0F;
    codes[i] = static_cast<uint8_t>(static_cast<int32_t>(round_even(c)));
  }
  __builtin_memcpy(range, &step_half, 2);
  __builtin_memcpy(range + 2, &low_half, 2);
  for (ptrdiff_t block = 0; block < n; block += kKvBlock, to += 16)
    for (int i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>(codes[block + i] | codes[block + 16 + i] << 4);
}

void decode_group(ptrdiff_t n, const uint8_t* range, const uint8_t* from, const uint16_t* offset, float* y) {
  uint16_t halves[2];
  __builtin_memcpy(halves, range, sizeof halves);
  const float step = of_bf16(halves[0]);
  const float base = of_bf16(halves[1]);
  float v[kKvGroup];
  for (ptrdiff_t block = 0; block < n; block += kKvBlock, from += 16)
    for (int i = 0; i < 16; ++i) {
      v[block + i] = static_cast<float>(from[i] & 15) * step + base;
      v[block + 16 + i] = static_cast<float>(from[i] >> 4) * step + base;
    }
  if (offset == nullptr) {
    for (ptrdiff_t i = 0; i < n; ++i) y[i] = v[i];
  } else {
    for (ptrdiff_t i = 0; i < n; ++i) y[i] = v[i] + of_bf16(offset[i]);
  }
}

void encode(KvCode code, ptrdiff_t n, const float* x, const uint16_t* offset, uint8_t* row) {
  if (code == KvCode::kInt4) {
    for (ptrdiff_t i = 0; i < n; i += kKvGroup)
      encode_group(n - i < kKvGroup ? n - i : kKvGroup, x + i, offset != nullptr ? offset + i : nullptr,
                   row + i / kKvGroup * 4, row + kv_codes_at(n) + i / 2);
  } else if (code == KvCode::kInt8) {
    offset != nullptr ? encode_row<KvCode::kInt8, true>(n, x, offset, row)
                      : encode_row<KvCode::kInt8, false>(n, x, offset, row);
  } else {
    offset != nullptr ? encode_row<KvCode::kFp8, true>(n, x, offset, row)
                      : encode_row<KvCode::kFp8, false>(n, x, offset, row);
  }
}

void decode(KvCode code, ptrdiff_t n, const uint8_t* row, const uint16_t* offset, float* y) {
  if (code == KvCode::kInt4) {
    for (ptrdiff_t i = 0; i < n; i += kKvGroup)
      decode_group(n - i < kKvGroup ? n - i : kKvGroup, row + i / kKvGroup * 4, row + kv_codes_at(n) + i / 2,
                   offset != nullptr ? offset + i : nullptr, y + i);
  } else if (code == KvCode::kInt8) {
    offset != nullptr ? decode_row<KvCode::kInt8, true>(n, row, offset, y)
                      : decode_row<KvCode::kInt8, false>(n, row, offset, y);
  } else {
    offset != nullptr ? decode_row<KvCode::kFp8, true>(n, row, offset, y)
                      : decode_row<KvCode::kFp8, false>(n, row, offset, y);
  }
}

}  // namespace
}  // namespace triptych::kernels
