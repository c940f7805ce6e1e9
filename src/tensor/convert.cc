#include "tensor/convert.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace triptych {
namespace {

// 256 floats are converted at a time: narrow -> float buffer -> narrow, both halves simple loops.
constexpr std::int64_t kBlock = 256;

template <typename T, typename F>
void each(const T* from, std::int64_t n, F to) {
  for (std::int64_t i = 0; i < n; ++i) to(i, from[i]);
}

// 8-bit floats have 256 values: a table is faster than the arithmetic.
template <float (*Decode)(std::uint8_t) noexcept>
void decode_bytes(const std::uint8_t* from, std::int64_t n, float* to) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> out{};
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = Decode(static_cast<std::uint8_t>(i));
    return out;
  }();
  each(from, n, [to](std::int64_t i, std::uint8_t bits) { to[i] = table[bits]; });
}

void load_f32(const std::byte* from, DType dtype, std::int64_t n, float* to) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(to, from, static_cast<std::size_t>(n) * 4);
      return;
    case DType::kF64:
      return each(reinterpret_cast<const double*>(from), n,
                  [to](std::int64_t i, double x) { to[i] = static_cast<float>(x); });
    case DType::kF16:
      return each(reinterpret_cast<const std::uint16_t*>(from), n,
                  [to](std::int64_t i, std::uint16_t x) { to[i] = f16_to_f32(x); });
    case DType::kBF16:
      return each(reinterpret_cast<const std::uint16_t*>(from), n,
                  [to](std::int64_t i, std::uint16_t x) { to[i] = bf16_to_f32(x); });
    case DType::kF8E4M3:
      return decode_bytes<f8e4m3_to_f32>(reinterpret_cast<const std::uint8_t*>(from), n, to);
    case DType::kF8E5M2:
      return decode_bytes<f8e5m2_to_f32>(reinterpret_cast<const std::uint8_t*>(from), n, to);
    default:
      return;
  }
}

void store_f32(const float* from, std::int64_t n, DType dtype, std::byte* to) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(to, from, static_cast<std::size_t>(n) * 4);
      return;
    case DType::kF64: {
      auto* out = reinterpret_cast<double*>(to);
      return each(from, n, [out](std::int64_t i, float x) { out[i] = static_cast<double>(x); });
    }
    case DType::kF16: {
      auto* out = reinterpret_cast<std::uint16_t*>(to);
      return each(from, n, [out](std::int64_t i, float x) { out[i] = f32_to_f16(x); });
    }
    case DType::kBF16: {
      auto* out = reinterpret_cast<std::uint16_t*>(to);
      return each(from, n, [out](std::int64_t i, float x) { out[i] = f32_to_bf16(x); });
    }
    case DType::kF8E4M3: {
      auto* out = reinterpret_cast<std::uint8_t*>(to);
      return each(from, n, [out](std::int64_t i, float x) { out[i] = f32_to_f8e4m3(x); });
    }
    case DType::kF8E5M2: {
      auto* out = reinterpret_cast<std::uint8_t*>(to);
      return each(from, n, [out](std::int64_t i, float x) { out[i] = f32_to_f8e5m2(x); });
    }
    default:
      return;
  }
}

void convert_run(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t n) {
  if (to_type == DType::kF32) return load_f32(from, from_type, n, reinterpret_cast<float*>(to));
  if (from_type == DType::kF32) return store_f32(reinterpret_cast<const float*>(from), n, to_type, to);
  std::array<float, kBlock> block;
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t count = std::min(kBlock, n - i);
    load_f32(from + static_cast<std::size_t>(i) * size_bytes(from_type), from_type, count, block.data());
    store_f32(block.data(), count, to_type, to + static_cast<std::size_t>(i) * size_bytes(to_type));
  }
}

void convert_rows(const TensorView& from, const TensorView& to) {
  if ((from.is_contiguous() && to.is_contiguous()) || from.rank() <= 1)
    return convert_run(from.data(), from.dtype(), to.data(), to.dtype(), from.numel());
  for (std::int64_t i = 0; i < from.dim(0); ++i) convert_rows(from.row(i), to.row(i));
}

}  // namespace

void convert(const TensorView& from, const TensorView& to) {
  if (from.shape() != to.shape() || !is_float(from.dtype()) || !is_float(to.dtype()))
    fail(ErrorCode::kInvalidArgument, "cannot convert {} {} to {} {}", to_string(from.dtype()),
         to_string(from.shape()), to_string(to.dtype()), to_string(to.shape()));
  if (from.empty()) return;
  if (from.dtype() == to.dtype()) return copy(from, to);
  convert_rows(from, to);
}

Tensor to_f32(const TensorView& from) {
  Tensor out(DType::kF32, from.shape());
  convert(from, out);
  return out;
}

}  // namespace triptych
