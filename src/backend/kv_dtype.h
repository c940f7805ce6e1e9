// How a cache keeps keys and values. Names as in vLLM where it has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace triptych {

enum class KvDType {
  kF32,
  kF16,
  kBF16,
  kInt8,  // 8-bit integers, a scale per token and head
  kFp8,   // E4M3 floats, a scale per token and head
  kInt4,  // 4-bit integers, a step and a minimum per token, head and 64 channels
};

/// "fp32", "fp16", "bf16", "int8", "fp8" or "int4".
std::string_view to_string(KvDType dtype) noexcept;

/// Also PyTorch's names ("float16") and "fp8_e4m3"; empty for "auto". Throws Error(kInvalidArgument) that
/// lists the names for others.
std::optional<KvDType> parse_kv_dtype(std::string_view name);

/// Bytes of one key or value vector of `head_dim` elements, scales included.
std::int64_t kv_row_size_bytes(KvDType dtype, int head_dim) noexcept;

constexpr bool is_quantized(KvDType dtype) noexcept { return dtype >= KvDType::kInt8; }

}  // namespace triptych
