#include "backend/cpu/packed_arrays.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/linear_quantized.h"
#include "base/error.h"

namespace triptych::cpu {

WeightArray WeightArray::make(WeightMemory& memory, std::string_view name, DType dtype, const Shape& shape) {
  WeightArray out;
  const Buffer taken = memory.take(static_cast<std::size_t>(shape.numel()) * triptych::size_bytes(dtype));
  out.name_ = name;
  out.view_ = TensorView(taken.data(), dtype, shape);
  out.owner_ = taken.owner();
  return out;
}

WeightArray WeightArray::borrow(const LinearSpec& spec, std::string_view name, DType dtype,
                                const Shape& shape) {
  const PackedArray* stored = spec.packed()->find(name);
  if (stored == nullptr) fail(ErrorCode::kInvalidFile, "{}: its array {} is not stored", spec.name, name);
  if (stored->view.dtype() != dtype || stored->view.shape() != shape || !stored->view.is_contiguous())
    fail(ErrorCode::kInvalidFile, "{}: array {}: expected {} {}, got {} {}", spec.name, name,
         to_string(dtype), to_string(shape), to_string(stored->view.dtype()),
         to_string(stored->view.shape()));
  if (reinterpret_cast<std::uintptr_t>(stored->view.cdata()) % Buffer::kAlignment_bytes != 0)
    fail(ErrorCode::kInvalidFile, "{}: array {} does not begin at a multiple of {} bytes", spec.name, name,
         Buffer::kAlignment_bytes);
  WeightArray out;
  out.name_ = name;
  out.view_ = stored->view;
  out.owner_ = stored->owner;
  out.is_borrowed_ = true;
  return out;
}

WeightArray WeightArray::borrow_finite(const LinearSpec& spec, std::string_view name, const Shape& shape) {
  WeightArray out = borrow(spec, name, DType::kF32, shape);
  const float* values = out.view_.cf32();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    if (!std::isfinite(values[i]))
      fail(ErrorCode::kInvalidFile, "{}: array {}: element {} is {}", spec.name, name, i, values[i]);
  return out;
}

void WeightArray::append_to(std::vector<PackedArray>& arrays) const {
  if (!empty()) arrays.push_back({std::string(name_), view_, owner_});
}

QuantizedShape quantized_shape(WeightMemory& memory, const LinearSpec& spec) {
  QuantizedShape out;
  const PackedLinear* packed = spec.packed();
  if (packed != nullptr) {
    if (packed->layout != kPanels64Layout)
      fail(ErrorCode::kUnsupported, "{}: it is packed as \"{}\"; the CPU backend reads \"{}\"", spec.name,
           packed->layout, kPanels64Layout);
    out.n_out = packed->n_out;
    out.n_in = packed->n_in;
    if (out.n_out < 1 || out.n_in < 1 || out.n_in > kernels::kS8MaxK || out.n_out > (std::int64_t{1} << 32))
      fail(ErrorCode::kInvalidFile, "{}: a stored matrix of {} x {}", spec.name, out.n_out, out.n_in);
  } else {
    out.n_out = check_parts(spec, out.n_in);
  }
  const std::int64_t padded = ceil_div(out.n_out, kernels::kS8PanelWidth) * kernels::kS8PanelWidth;
  if (packed != nullptr) {
    if (packed->find("bias") != nullptr) out.bias = WeightArray::borrow_finite(spec, "bias", {padded});
  } else if (const std::vector<float> bias = stacked_bias(spec); !bias.empty()) {
    out.bias = WeightArray::make(memory, "bias", DType::kF32, {padded});
    std::copy(bias.begin(), bias.end(), out.bias.f32());
  }
  return out;
}

}  // namespace triptych::cpu
