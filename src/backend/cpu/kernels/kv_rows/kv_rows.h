// Rows of keys and values in few bits: one token's vector of one head, with scales of its own ("per token and
// head"), so that nothing has to be calibrated. Codes: 8-bit integers, E4M3 floats, 4-bit integers in groups.
//
// Keys of some models carry a large constant in a few channels (a bias of q/k projections; Qwen2 is known
// for it), which would take all levels of the row. Such channels get an offset, subtracted before; what it
// adds to a score, q offset, is added after. `choose_offsets` finds them in the first row of a page, and all
// rows of the page share them.
//
// Every implementation gives the same bits. Rows with an infinity or a NaN decode to NaN.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels/element_type.h"

namespace triptych::kernels {

enum class KvCode : int {
  kInt8,  // n codes -127..127, padded to a multiple of 4, then the scale, bfloat16: max |x| / 127
  kFp8,   // the same with E4M3 codes and max |x| / 448
  kInt4,  // for each group of 64 elements step and minimum (bfloat16 each); then for each 32 elements 16
          // bytes: element i in the low, i + 16 in the high half
};

inline constexpr ptrdiff_t kKvGroup = 64;  // elements of a kInt4 group
inline constexpr ptrdiff_t kKvBlock = 32;  // elements whose codes are 16 bytes

/// Where the scale of a kInt8 or kFp8 row stands, and the codes of a kInt4 row begin; in bytes.
static constexpr ptrdiff_t kv_scale_at(ptrdiff_t n) { return (n + 3) / 4 * 4; }
static constexpr ptrdiff_t kv_codes_at(ptrdiff_t n) { return (n + kKvGroup - 1) / kKvGroup * 4; }
/// Bytes of a row of n elements: a multiple of 2.
static constexpr ptrdiff_t kv_row_bytes(KvCode code, ptrdiff_t n) {
  return code == KvCode::kInt4 ? kv_codes_at(n) + (n + kKvBlock - 1) / kKvBlock * 16 : kv_scale_at(n) + 2;
}

/// A channel of a page's keys from which `value` (bfloat16) was subtracted; 0: none, nor any behind it.
struct KvOffset {
  uint16_t channel;
  uint16_t value;
};
/// Of n channels so many at most.
static constexpr ptrdiff_t kv_max_offsets(ptrdiff_t n) { return n / 16; }
inline constexpr ptrdiff_t kKvMaxChannels = 65536;

struct KvRowKernels {
  const char* name;
  /// offsets [kv_max_offsets(n)]: the largest channels, as long as |x[i]| is above four times the root mean
  /// square of those that are left, each with x[i]. n <= kKvMaxChannels.
  void (*choose_offsets)(ptrdiff_t n, const float* x, KvOffset* offsets);
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
