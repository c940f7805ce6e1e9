#include "tensor/arena.h"

#include <utility>

namespace triptych {

Arena::Arena(std::size_t min_chunk_bytes, Allocator allocate)
    : tensors_(min_chunk_bytes, std::move(allocate)) {}

Arena::Arena(std::size_t min_chunk_bytes, Allocator allocate, Allocator allocate_host)
    : tensors_(min_chunk_bytes, std::move(allocate)) {
  host_.emplace(min_chunk_bytes, std::move(allocate_host));
}

TensorView Arena::make(DType dtype, const Shape& shape) {
  std::byte* data = tensors_.make_array(static_cast<std::size_t>(shape.numel()), size_bytes(dtype));
  return TensorView(data, dtype, shape, tensors_.kind());
}

TensorView Arena::make_host(DType dtype, const Shape& shape) {
  std::byte* data = host().make_array(static_cast<std::size_t>(shape.numel()), size_bytes(dtype));
  return TensorView(data, dtype, shape, host().kind());
}

Arena::Mark Arena::mark() const noexcept {
  return {tensors_.mark(), host_ ? host_->mark() : ArenaStack::Mark{}};
}

void Arena::rewind(const Mark& mark) noexcept {
  tensors_.rewind(mark.tensors);
  if (host_) host_->rewind(mark.host);
}

void Arena::reset() {
  tensors_.reset();
  if (host_) host_->reset();
}

void Arena::release() noexcept {
  tensors_.release();
  if (host_) host_->release();
}

std::size_t Arena::bytes_in_use() const noexcept {
  return tensors_.bytes_in_use() + (host_ ? host_->bytes_in_use() : 0);
}

std::size_t Arena::peak_bytes() const noexcept {
  return tensors_.peak_bytes() + (host_ ? host_->peak_bytes() : 0);
}

std::size_t Arena::reserved_bytes() const noexcept {
  return tensors_.reserved_bytes() + (host_ ? host_->reserved_bytes() : 0);
}

std::int64_t Arena::n_chunk_allocations() const noexcept {
  return tensors_.n_chunk_allocations() + (host_ ? host_->n_chunk_allocations() : 0);
}

Arena::Extent Arena::high() const noexcept {
  return {tensors_.high_bytes(), host_ ? host_->high_bytes() : 0};
}

void Arena::take(const Extent& extent) {
  tensors_.make_bytes(extent.tensor_bytes);
  if (host_) host_->make_bytes(extent.host_bytes);
}

std::int64_t Arena::generation() const noexcept {
  return tensors_.generation() + (host_ ? host_->generation() : 0);
}

}  // namespace triptych
