// Element types of tensors. Names and sizes follow the safetensors format (huggingface/safetensors, README
// "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace triptych {

/// kF8E4M3 is the "FN" variant of OCP 8-bit floats: no infinity, NaN is 0x7f / 0xff, the largest value is
/// 448.
enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kBool,
  kF8E4M3,
  kF8E5M2
};

/// Bytes of one element.
constexpr std::size_t size_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return 1;
  }
  return 0;
}

/// True for the floating-point types, 8-bit floats included.
constexpr bool is_float(DType dtype) noexcept {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF64 ||
         dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
}

/// The name in a safetensors header: "F32", "BF16", "F8_E4M3", "BOOL", ...
std::string_view to_string(DType dtype) noexcept;

/// Inverse of to_string; nothing for an unknown name.
std::optional<DType> dtype_from_safetensors(std::string_view name) noexcept;

/// The DType of a C++ type: dtype_of<float> is kF32. Only types with one meaning are here (16-bit floats have
/// none).
template <typename T>
inline constexpr DType dtype_of = DType{0xff};
template <>
inline constexpr DType dtype_of<float> = DType::kF32;
template <>
inline constexpr DType dtype_of<double> = DType::kF64;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::kI8;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::kU8;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::kI16;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::kU16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::kI32;
template <>
inline constexpr DType dtype_of<std::uint32_t> = DType::kU32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::kI64;
template <>
inline constexpr DType dtype_of<std::uint64_t> = DType::kU64;

}  // namespace triptych
