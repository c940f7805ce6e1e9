// One element of a stored array as float and back, for scalar kernels. Any alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels/element_type.h"
#include "base/half.h"

namespace triptych::kernels {

inline float load_element(const void* array, ElementType type, std::ptrdiff_t i) noexcept {
  const char* at = static_cast<const char*>(array) + i * static_cast<std::ptrdiff_t>(element_bytes(type));
  if (type == ElementType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return type == ElementType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

inline void store_element(void* array, ElementType type, std::ptrdiff_t i, float value) noexcept {
  char* at = static_cast<char*>(array) + i * static_cast<std::ptrdiff_t>(element_bytes(type));
  if (type == ElementType::kF32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const std::uint16_t bits = type == ElementType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
  std::memcpy(at, &bits, sizeof(bits));
}

}  // namespace triptych::kernels
