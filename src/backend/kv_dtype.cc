#include "backend/kv_dtype.h"

#include "base/error.h"

namespace triptych {

std::string_view to_string(KvDType dtype) noexcept {
  switch (dtype) {
    case KvDType::kF32:
      return "fp32";
    case KvDType::kF16:
      return "fp16";
    case KvDType::kBF16:
      return "bf16";
    case KvDType::kInt8:
      return "int8";
    case KvDType::kFp8:
      return "fp8";
    case KvDType::kInt4:
      return "int4";
  }
  return "?";
}

std::optional<KvDType> parse_kv_dtype(std::string_view name) {
  if (name == "auto") return std::nullopt;
  if (name == "fp32" || name == "float32" || name == "float") return KvDType::kF32;
  if (name == "fp16" || name == "float16" || name == "half") return KvDType::kF16;
  if (name == "bf16" || name == "bfloat16") return KvDType::kBF16;
  if (name == "int8") return KvDType::kInt8;
  if (name == "fp8" || name == "fp8_e4m3") return KvDType::kFp8;
  if (name == "int4") return KvDType::kInt4;
  fail(ErrorCode::kInvalidArgument,
       "unknown type of keys and values '{}': expected auto, fp32, fp16, bf16, int8, fp8 or int4", name);
}

std::int64_t kv_row_size_bytes(KvDType dtype, int head_dim) noexcept {
  const std::int64_t n = head_dim;
  switch (dtype) {
    case KvDType::kF32:
      return 4 * n;
    case KvDType::kF16:
    case KvDType::kBF16:
      return 2 * n;
    case KvDType::kInt8:
    case KvDType::kFp8:
      return (n + 3) / 4 * 4 + 2;
    case KvDType::kInt4:
      return (n + 63) / 64 * 4 + (n + 31) / 32 * 16;
  }
  return 0;
}

}  // namespace triptych
