// Conversion between floating-point element types (base/half.h gives the rounding).
#pragma once

#include "tensor/tensor.h"

namespace triptych {

/// Writes `from` into `to`, each element rounded to nearest even; equal types are copied bit for bit. Shapes
/// must be equal, both types floating point (F64, F32, F16, BF16, F8_E4M3, F8_E5M2); leading strides may
/// differ. F64 goes through F32. Throws Error(kInvalidArgument) otherwise.
void convert(const TensorView& from, const TensorView& to);

/// A new F32 tensor.
Tensor to_f32(const TensorView& from);

}  // namespace triptych
