// Resizing of learned position tables when a model is loaded.
#pragma once

#include "tensor/tensor.h"

namespace triptych {

/// Rows of a square grid [from * from, D] to [to * to, D] as torch.nn.functional.interpolate(mode="bicubic",
/// align_corners=False) does: A = -0.75, half-pixel centres, no antialiasing, taps clamped to the edge.
/// float32; the same table when from == to.
Tensor interpolate_bicubic_grid(const Tensor& table, int from, int to);

}  // namespace triptych
