#include <immintrin.h>

#include "backend/cpu/kernels/kv_rows/kv_rows_body.h"

namespace triptych::kernels {
namespace {

inline __mmask16 first(ptrdiff_t n) { return static_cast<__mmask16>(n >= 16 ? 0xffff : (1U << n) - 1); }

template <bool kOffset>
inline __m512 values_at(ptrdiff_t n, const float* x, const uint16_t* offset, ptrdiff_t i) {
  const __mmask16 valid = first(n - i);
  const __m512 v = _mm512_maskz_loadu_ps(valid, x + i);
  if constexpr (!kOffset) return v;
  const __m512i half = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(valid, offset + i));
  return _mm512_sub_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(half, 16)));
}

// encode_row<kInt8> with instructions written out: every key and value of a prompt passes here.
template <bool kOffset>
void encode_int8(ptrdiff_t n, const float* x, const uint16_t* offset, uint8_t* row) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  __m512i most = _mm512_setzero_si512();
  for (ptrdiff_t i = 0; i < n; i += 16)
    most = _mm512_max_epu32(most,
                            _mm512_and_si512(mask, _mm512_castps_si512(values_at<kOffset>(n, x, offset, i))));
  const uint32_t bits = _mm512_reduce_max_epu32(most);
  const float largest = float_of(bits);
  const bool bad = bits >= kInfinityBits;
  const bool nothing = bad || largest < kSmallest;
  const uint16_t scale = bad ? uint16_t{0x7fc0} : nothing ? uint16_t{0} : to_bf16(largest / 127.0F);
  const __m512 inverse = _mm512_set1_ps(nothing ? 0.0F : 1.0F / of_bf16(scale));
  const __mmask16 keep = nothing ? 0 : 0xffff;
  const ptrdiff_t padded = kv_scale_at(n);
  for (ptrdiff_t i = 0; i < padded; i += 16) {
    const __m512 v =
        _mm512_mul_ps(values_at<kOffset>(n, x, offset, i), inverse);  // at most 127.3: rounds to -127 .. 127
    _mm512_mask_cvtepi32_storeu_epi8(row + i, first(padded - i), _mm512_maskz_cvtps_epi32(keep, v));
  }
  __builtin_memcpy(row + padded, &scale, sizeof scale);
}

void encode_any(KvCode code, ptrdiff_t n, const float* x, const uint16_t* offset, uint8_t* row) {
  if (code != KvCode::kInt8) return encode(code, n, x, offset, row);
  offset != nullptr ? encode_int8<true>(n, x, offset, row) : encode_int8<false>(n, x, offset, row);
}

}  // namespace

extern const KvRowKernels kKvRowAvx512 = {"avx512", choose_offsets, encode_any, decode};

}  // namespace triptych::kernels
