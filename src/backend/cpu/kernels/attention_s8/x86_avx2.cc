// Weights of 16 bits are multiplied at once, less 2^15 so that they are signed; 2^15 times the values' sums
// puts that right. Sums may wrap on the way, and are exact in the end (attention_s8.h).
#include "backend/cpu/kernels/simd/vec_avx2.h"
//
#include "backend/cpu/kernels/attention_s8/attention_s8.h"
#include "backend/cpu/kernels/simd/dot16_avx2.h"
#include "backend/cpu/kernels/simd/math.h"
#include "backend/cpu/kernels/simd/row_count.h"

namespace triptych::kernels {
namespace {

// Up to 32 bytes, zeros behind them.
TRIPTYCH_INLINE __m256i load_bytes(const void* from, int n) {
  if (n >= 32) return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  if (n <= 0) return _mm256_setzero_si256();
  if (n % 4 == 0) return _mm256_maskload_epi32(static_cast<const int*>(from), first_lanes(n / 4));
  char part[32] = {};
  memcpy(part, from, static_cast<size_t>(n));
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(part));
}

void pack_keys(const S8PackKeysArgs& t) {
  const __m256i sign = _mm256_set1_epi8(-128);
  const int n_quads = (t.head_dim + 3) / 4;
  for (int first = 0; first < n_quads; first += 8) {
    const int quads = n_quads - first < 8 ? n_quads - first : 8;
    for (int j = 0; j < 64; j += 8) {
      Vf v[8];
      TRIPTYCH_UNROLL
      for (int i = 0; i < 8; ++i)
        v[i] = j + i < t.n_keys
                   ? _mm256_castsi256_ps(load_bytes(static_cast<const char*>(t.rows[j + i]) + 4 * first,
                                                    t.head_dim - 4 * first))
                   : vzero();
      vtranspose(v);
      for (int i = 0; i < quads; ++i)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.panel + (first + i) * 256 + 4 * j),
                            _mm256_xor_si256(_mm256_castps_si256(v[i]), sign));
    }
  }
}

void pack_values(const S8PackValuesArgs& t) {
  for (int j = 0; j < t.n_keys; j += 4)
    for (int half = 0; half < 64; half += 32) {
      __m256i r[4];
      const int column = t.column + half;
      TRIPTYCH_UNROLL
      for (int i = 0; i < 4; ++i)
        r[i] = j + i < t.n_keys && column < t.head_dim
                   ? load_bytes(static_cast<const char*>(t.rows[j + i]) + column, t.head_dim - column)
                   : _mm256_setzero_si256();
      const __m256i a = _mm256_unpacklo_epi8(r[0], r[1]);
      const __m256i b = _mm256_unpackhi_epi8(r[0], r[1]);
      const __m256i c = _mm256_unpacklo_epi8(r[2], r[3]);
      const __m256i d = _mm256_unpackhi_epi8(r[2], r[3]);
      // Half l of v[i] holds columns 16 l + 4 i and on: put in order.
      const __m256i v[4] = {_mm256_unpacklo_epi16(a, c), _mm256_unpackhi_epi16(a, c),
                            _mm256_unpacklo_epi16(b, d), _mm256_unpackhi_epi16(b, d)};
      auto* to = reinterpret_cast<__m256i*>(t.panel + j * 64 + half * 4);
      _mm256_storeu_si256(to, _mm256_permute2x128_si256(v[0], v[1], 0x20));
      _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(v[2], v[3], 0x20));
      _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(v[0], v[1], 0x31));
      _mm256_storeu_si256(to + 3, _mm256_permute2x128_si256(v[2], v[3], 0x31));
    }
}

TRIPTYCH_INLINE Mask lanes_before(int n) { return _mm256_castsi256_ps(first_lanes(n)); }

TRIPTYCH_INLINE Vf exp2_below(Vf x) { return vexp2_lean(vmax(vset(-126.0F), x)); }

// Codes of 16 weights in 16 bits: 128-bit lanes are kept apart, and NaN becomes 0.
TRIPTYCH_INLINE __m256i codes16(const float* weights, Vf factor) {
  return _mm256_packus_epi32(_mm256_cvtps_epi32(vmul(vload(weights), factor)),
                             _mm256_cvtps_epi32(vmul(vload(weights + 8), factor)));
}
TRIPTYCH_INLINE __m256i in_order(__m256i bytes) {
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
TRIPTYCH_INLINE void store_bytes(uint8_t* to, __m256i v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v);
}

TRIPTYCH_INLINE void store_codes16(const float* weights, Vf factor, int n, uint8_t* high, uint8_t* low) {
  const __m256i byte = _mm256_set1_epi16(255);
  for (int j = 0; j < n; j += 32) {
    const __m256i a = codes16(weights + j, factor);
    const __m256i b = codes16(weights + j + 16, factor);
    store_bytes(high + j, in_order(_mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8))));
    store_bytes(low + j, in_order(_mm256_packus_epi16(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte))));
  }
}

TRIPTYCH_INLINE void store_codes8(const float* weights, Vf factor, int n, uint8_t* high) {
  for (int j = 0; j < n; j += 32)
    store_bytes(high + j, in_order(_mm256_packus_epi16(codes16(weights + j, factor),
                                                       codes16(weights + j + 16, factor))));
}

}  // namespace
}  // namespace triptych::kernels

#include "backend/cpu/kernels/attention_s8/attention_s8_body.h"

namespace triptych::kernels {
namespace {

// 256 high + low - 32768; four keys a quad.
TRIPTYCH_INLINE void join_weights(const uint8_t* high, const uint8_t* low, ptrdiff_t n, int16_t* out) {
  const __m256i sign = _mm256_set1_epi16(-32768);
  ptrdiff_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i upper = _mm256_slli_epi16(widen16<false>(high + i), 8);
    const __m256i code = low != nullptr ? _mm256_or_si256(upper, widen16<false>(low + i)) : upper;
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), _mm256_xor_si256(code, sign));
  }
  for (; i < n; ++i) out[i] = static_cast<int16_t>(256 * high[i] + (low != nullptr ? low[i] : 0) - 32768);
}

// Sums of eight columns of values, 2^15 times.
TRIPTYCH_INLINE __m256i value_sums(const int8_t* panel, ptrdiff_t quads) {
  __m256i sums = _mm256_setzero_si256();  // of two keys each, in 16 bits: 64 quads of 2 * 127 at most
  for (ptrdiff_t i = 0; i < quads; ++i)
    sums = _mm256_add_epi16(
        sums, _mm256_maddubs_epi16(_mm256_set1_epi8(1),
                                   _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + 256 * i))));
  return _mm256_slli_epi32(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)), 15);
}

template <int kRows>
void rows(const S8AccumulateArgs& t) {
  alignas(32) int16_t x[kRows][kS8ChunkKeys];
  for (int r = 0; r < kRows; ++r)
    join_weights(t.high + r * t.stride, t.low != nullptr ? t.low + r * t.stride : nullptr, 4 * t.quads, x[r]);
  for (int c = 0; c < 64; c += 8) {
    const int8_t* panel = t.panel + 4 * c;
    __m256i sums[kRows];
    dot_columns8<kRows, kS8ChunkKeys, true>(x[0], panel, t.quads, sums);
    const __m256i shift = value_sums(panel, t.quads);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      float* y = t.y + r * t.y_stride + c;
      const Vf sum = _mm256_cvtepi32_ps(_mm256_add_epi32(sums[r], shift));
      vstore(y, vfma(vload(y), vset(t.rescale[r]), vmul(sum, vset(t.weight_scale[r]))));
    }
  }
}

void accumulate(const S8AccumulateArgs& t) {
  with_row_count<6>(t.n_rows, [&](auto n) { rows<n.value>(t); });
}

}  // namespace

extern const AttentionS8Kernels kAttentionS8Avx2 = {"avx2", pack_keys, pack_values, soften, accumulate};

}  // namespace triptych::kernels
