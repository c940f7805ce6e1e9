// Arrays of a quantized weight: made while loading, or borrowed from a mapped file of `triptych convert`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/runtime.h"
#include "tensor/packed_linear.h"
#include "tensor/tensor.h"

namespace triptych::cpu {

/// Typed memory, owned or borrowed.
class WeightArray {
 public:
  WeightArray() = default;
  /// Zeroed.
  static WeightArray make(WeightMemory& memory, std::string_view name, DType dtype, const Shape& shape);
  /// The stored array of `spec.packed()`. Throws Error(kInvalidFile) naming weight and array when it is
  /// missing or of another type, shape or alignment.
  static WeightArray borrow(const LinearSpec& spec, std::string_view name, DType dtype, const Shape& shape);
  /// The same for floats that must be finite.
  static WeightArray borrow_finite(const LinearSpec& spec, std::string_view name, const Shape& shape);

  bool empty() const noexcept { return view_.empty(); }
  template <typename T>
  T* as() const {
    return view_.as<T>();
  }
  /// Null when empty.
  float* f32() const { return empty() ? nullptr : view_.f32(); }
  std::uint8_t* bytes() const noexcept { return reinterpret_cast<std::uint8_t*>(view_.data()); }
  std::int64_t numel() const noexcept { return empty() ? 0 : view_.numel(); }
  std::size_t size_bytes() const noexcept { return empty() ? 0 : view_.size_bytes(); }
  /// Private memory.
  std::size_t owned_bytes() const noexcept { return is_borrowed_ ? 0 : size_bytes(); }
  /// Adds itself unless empty.
  void append_to(std::vector<PackedArray>& arrays) const;

 private:
  std::string_view name_;  // a literal
  TensorView view_;
  std::shared_ptr<const void> owner_;
  bool is_borrowed_ = false;
};

/// What a quantized weight begins with: its size, and its bias padded to whole panels.
struct QuantizedShape {
  std::int64_t n_out = 0;
  std::int64_t n_in = 0;
  WeightArray bias;  // [n_out rounded up to 64], or empty
};
/// Of the matrices and biases, or of the packed linear. Throws Error(kInvalidFile / kUnsupported) naming the
/// tensor.
QuantizedShape quantized_shape(WeightMemory& memory, const LinearSpec& spec);

}  // namespace triptych::cpu
