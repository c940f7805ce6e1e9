#include "tensor/dtype.h"

#include <array>
#include <utility>

namespace triptych {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 15> kNames{{{DType::kF32, "F32"},
                                                                     {DType::kF16, "F16"},
                                                                     {DType::kBF16, "BF16"},
                                                                     {DType::kF64, "F64"},
                                                                     {DType::kI8, "I8"},
                                                                     {DType::kU8, "U8"},
                                                                     {DType::kI16, "I16"},
                                                                     {DType::kU16, "U16"},
                                                                     {DType::kI32, "I32"},
                                                                     {DType::kU32, "U32"},
                                                                     {DType::kI64, "I64"},
                                                                     {DType::kU64, "U64"},
                                                                     {DType::kBool, "BOOL"},
                                                                     {DType::kF8E4M3, "F8_E4M3"},
                                                                     {DType::kF8E5M2, "F8_E5M2"}}};

}  // namespace

std::string_view to_string(DType dtype) noexcept {
  for (const auto& [known, name] : kNames)
    if (known == dtype) return name;
  return "unknown";
}

std::optional<DType> dtype_from_safetensors(std::string_view name) noexcept {
  for (const auto& [known, text] : kNames)
    if (text == name) return known;
  return std::nullopt;
}

}  // namespace triptych
