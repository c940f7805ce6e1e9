// The bit layouts of quantized matrices; the one place that defines them. A matrix is [N, K], a row one
// output channel, quantized along K in groups of `group_size` neighbours (the last group of a row may be
// shorter).
//
//   codes   8-bit kinds: [N, K] bytes. 4-bit kinds: [N, ceil(K / 2)] bytes, the even element in the low half.
//             int8   two's complement, -127..127
//             int4   q + 8 for the symmetric ranges (q in -8..7), q itself in 0..15 for the asymmetric one
//             nf4    index of a level in kNf4Levels
//             f8     the float's bits (base/half.h)
//   scales  [N, G] of scale_dtype, G = ceil(K / group_size). The sign is used: full-range int4 has negative
//   ones. zeros   asymmetric only: [N, ceil(G / 2)] bytes, 4 bits a group, the even group in the low half.
//   two_level (int4): scales is [N, G] bytes, integers 1..kMaxGroupScale, and row_scales [N] of scale_dtype:
//             value = row_scale * (scale * (q - zero)), the inner product within -127..127, so that a row
//             expands to int8 exactly (Lin et al., "QServe" (2024), section 4.1).
// Value of a code: scale * q, or scale * (q - zero), or scale * level.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace triptych {

enum class QuantCode : std::uint8_t { kInt8, kInt4, kNf4, kF8E4M3, kF8E5M2 };

/// How the range of int4 is laid over a group.
enum class QuantRange : std::uint8_t {
  kAbsMax,      // scale = max |w| / 7, codes -8..7, -8 only when clipped (AutoAWQ)
  kHalfStep,    // scale = max |w| / 7.5, codes -8..7 (GPTQ, compressed-tensors)
  kFullRange,   // scale = w_ext / -8 with w_ext the element of largest magnitude, codes -8..7 (ggml Q4_0)
  kAsymmetric,  // scale = (max - min) / 15 with 0 inside, a zero point of 4 bits
};

struct QuantFormat {
  static constexpr std::int64_t kWholeRow = 0;
  static constexpr int kMaxGroupScale = 16;

  QuantCode code = QuantCode::kInt8;
  QuantRange range = QuantRange::kAbsMax;  // int4 only; the others are symmetric
  std::int64_t group_size = kWholeRow;     // elements that share a scale
  DType scale_dtype = DType::kF16;         // kF16, kBF16 or kF32
  bool two_level = false;                  // int4 only

  bool operator==(const QuantFormat&) const = default;

  int bits() const noexcept { return code == QuantCode::kInt4 || code == QuantCode::kNf4 ? 4 : 8; }
  bool has_zeros() const noexcept { return code == QuantCode::kInt4 && range == QuantRange::kAsymmetric; }
  std::int64_t group_of_row(std::int64_t k) const noexcept {
    return group_size == kWholeRow ? k : group_size;
  }
  std::int64_t n_groups(std::int64_t k) const noexcept;

  /// Bytes of one row of each array.
  std::int64_t row_code_bytes(std::int64_t k) const noexcept { return (k * bits() + 7) / 8; }
  std::int64_t row_scale_bytes(std::int64_t k) const noexcept;
  std::int64_t row_zero_bytes(std::int64_t k) const noexcept {
    return has_zeros() ? (n_groups(k) + 1) / 2 : 0;
  }
  /// All arrays of a matrix, row scales included.
  std::int64_t matrix_bytes(std::int64_t n, std::int64_t k) const noexcept;
  double bits_per_weight(std::int64_t k) const noexcept;

  /// Throws Error(kInvalidArgument) for combinations that do not exist.
  void validate() const;
  /// As parse reads it, e.g. "int4:g32:asym", "int8", "nf4:g64:bf16".
  std::string to_string() const;
  /// KIND[:gN|:channel][:sym|:absmax|:half|:asym][:fp16|:bf16|:fp32][:two-level]. Defaults: int8 and f8 per
  /// channel, int4 g128 full-range symmetric ("sym"), nf4 g64, fp16 scales. Throws Error(kInvalidArgument)
  /// that names the part.
  static QuantFormat parse(std::string_view text);
};

/// Dettmers et al., "QLoRA" (2023), appendix E: quantiles of the normal distribution, with an exact zero.
inline constexpr float kNf4Levels[16] = {
    -1.0F,       -0.69619280F, -0.52507305F, -0.39491749F, -0.28444138F, -0.18477343F, -0.09105004F, 0.0F,
    0.07958030F, 0.16093020F,  0.24611230F,  0.33791524F,  0.44070983F,  0.56261700F,  0.72295684F,  1.0F};

}  // namespace triptych
