#include "backend/memory.h"

#include <utility>

#include "base/error.h"

namespace triptych {

Tensor make_operand(Backend& backend, DType dtype, const Shape& shape) {
  if (backend.memory_kind() == MemoryKind::kHost) return Tensor(dtype, shape);
  const auto numel = static_cast<std::size_t>(shape.numel());
  if (numel > SIZE_MAX / 2 / size_bytes(dtype))
    fail(ErrorCode::kOutOfMemory, "no memory for a tensor {} of {}", to_string(shape), to_string(dtype));
  return Tensor(backend.allocate(numel * size_bytes(dtype)), dtype, shape);
}

Tensor copy_operand(Backend& backend, const TensorView& x) {
  Tensor out = make_operand(backend, x.dtype(), x.shape());
  TensorView to = out;
  backend.copy(x, to);
  return out;
}

Tensor upload(Backend& backend, Tensor x) {
  if (x.view().kind() == backend.memory_kind()) return x;
  Tensor out = make_operand(backend, x.dtype(), x.shape());
  TensorView to = out;
  backend.upload(x, to);
  return out;
}

Arena make_arena(Backend& backend, std::size_t min_chunk_bytes) {
  const auto of_kind = [&backend](MemoryKind kind) {
    return [&backend, kind](std::size_t n) { return backend.allocate(n, kind); };
  };
  if (backend.memory_kind() == MemoryKind::kHost) return Arena(min_chunk_bytes, of_kind(MemoryKind::kHost));
  return Arena(min_chunk_bytes, of_kind(MemoryKind::kDevice), of_kind(MemoryKind::kHost));
}

}  // namespace triptych
