// Rows of keys and values in few bits: one token's vector of one head, with scales of its own ("per token and
// head"), so that nothing has to be calibrated. Codes: 8-bit integers, E4M3 floats, 4-bit integers in groups.
//
// Keys of some models carry a large constant in a few channels (a bias of q/k projections; Qwen2 is known
// for it), which would take all levels of the row. Such channels get an offset, subtracted before and added
// after: `choose_offset` finds it in the first row of a page, and all rows of the page share it.
//
// Every implementation gives the same bits. Rows with an infinity or a NaN decode to NaN.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels/element_type.h"

namespace triptych::kernels {

enum class KvCode : int {
  kInt8,  // n codes -127..127, padded to a multiple of 4, then the scale, float: max |x| / 127
  kFp8,   // the same with E4M3 codes and max |x| / 448
  kInt4,  // groups of 32 elements: step and minimum (bfloat16 each), then 16 bytes: element i and i + 16
};

inline constexpr ptrdiff_t kKvGroup = 32;  // elements of a kInt4 group
inline constexpr ptrdiff_t kKvGroupBytes = 20;

/// Bytes of a row of n elements: a multiple of 4.
constexpr ptrdiff_t kv_row_bytes(KvCode code, ptrdiff_t n) {
  return code == KvCode::kInt4 ? (n + kKvGroup - 1) / kKvGroup * kKvGroupBytes : (n + 3) / 4 * 4 + 4;
}

struct KvRowKernels {
  const char* name;
  /// offset[i] = x[i] as bfloat16 where |x[i]| is above four times the row's root mean square, else 0.
  void (*choose_offset)(ptrdiff_t n, const float* x, uint16_t* offset);
  /// row = codes of x - offset; `offset` is null or [n] bfloat16.
  void (*encode)(KvCode code, ptrdiff_t n, const float* x, const uint16_t* offset, uint8_t* row);
  /// y = what the codes stand for, plus the offset.
  void (*decode)(KvCode code, ptrdiff_t n, const uint8_t* row, const uint16_t* offset, float* y);
};

const KvRowKernels& kv_row_kernels(CpuFeatures features);

extern const KvRowKernels kKvRowScalar;
extern const KvRowKernels kKvRowAvx2;
extern const KvRowKernels kKvRowAvx512;
extern const KvRowKernels kKvRowNeon;

}  // namespace triptych::kernels
