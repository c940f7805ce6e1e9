// Tensors and arenas in the memory that a backend's operations use. On a processor that is its own, and
// nothing here copies.
#pragma once

#include "backend/backend.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"

namespace triptych {

/// An operand, not initialised. Throws Error(kOutOfMemory), as all of these.
Tensor make_operand(Backend& backend, DType dtype, const Shape& shape);
/// A contiguous copy of an operand.
Tensor copy_operand(Backend& backend, const TensorView& x);
/// A tensor in host memory as an operand: itself, or a copy.
Tensor upload(Backend& backend, Tensor x);

/// For the steps of this backend, which must outlive it.
Arena make_arena(Backend& backend, std::size_t min_chunk_bytes = Arena::kMinChunkBytes);

}  // namespace triptych
