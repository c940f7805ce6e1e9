#include "tensor/tensor.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/memory_pool.h"

namespace triptych {
namespace {

std::size_t index_of(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

// Calls body(from row, to row, elements) for each run of elements that is dense in both views.
template <typename Body>
void for_each_row(const TensorView& a, const TensorView& b, Body body) {
  if (a.empty()) return;
  if ((a.is_contiguous() && b.is_contiguous()) || a.rank() <= 1) {
    body(a.data(), b.data(), a.numel());
    return;
  }
  for (std::int64_t i = 0; i < a.dim(0); ++i) for_each_row(a.row(i), b.row(i), body);
}

void check_host(const char* what, const TensorView& x) {
  TRIPTYCH_CHECK(x.kind() == MemoryKind::kHost,
                 "{} of tensor {}, which lies in device memory: download it first", what,
                 to_string(x.shape()));
}

void release(const void* data) noexcept {
  try {
    MemoryPool::process().release(static_cast<std::byte*>(const_cast<void*>(data)));
  } catch (const std::exception& problem) {  // somebody wrote over the pool's books: nothing to be saved
    log_warning("{}", problem.what());
  }
}

}  // namespace

TensorView::TensorView(void* data, DType dtype, const Shape& shape, MemoryKind kind)
    : data_(static_cast<std::byte*>(data)), dtype_(dtype), kind_(kind), shape_(shape) {
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides_[index_of(i)] = stride;
    stride *= shape.dim(i) == 0 ? 1 : shape.dim(i);
  }
}

TensorView::TensorView(void* data, DType dtype, const Shape& shape, std::span<const std::int64_t> strides)
    : data_(static_cast<std::byte*>(data)), dtype_(dtype), shape_(shape) {
  TRIPTYCH_CHECK(strides.size() == shape.dims().size(), "{} strides for shape {}", strides.size(),
                 to_string(shape));
  TRIPTYCH_CHECK(strides.empty() || strides.back() == 1, "last stride is {}", strides.back());
  for (std::size_t i = 0; i < strides.size(); ++i) strides_[i] = strides[i];
}

TensorView TensorView::of_const(const void* data, DType dtype, const Shape& shape) {
  return TensorView(const_cast<void*>(data), dtype, shape);
}

std::size_t TensorView::size_bytes() const noexcept {
  return static_cast<std::size_t>(numel()) * triptych::size_bytes(dtype_);
}

std::int64_t TensorView::stride(int i) const {
  const int index = i < 0 ? i + rank() : i;
  TRIPTYCH_CHECK(index >= 0 && index < rank(), "stride {} of shape {}", i, to_string(shape_));
  return strides_[index_of(index)];
}

bool TensorView::is_contiguous() const noexcept {
  if (numel() == 0) return true;
  std::int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    const std::int64_t size = shape_.dims()[index_of(i)];
    if (size != 1 && strides_[index_of(i)] != expected) return false;
    expected *= size;
  }
  return true;
}

void TensorView::check_access(DType wanted) const {
  check_host("an access to the elements", *this);
  const bool as_bits = (wanted == DType::kU16 && (dtype_ == DType::kF16 || dtype_ == DType::kBF16)) ||
                       (wanted == DType::kU8 &&
                        (dtype_ == DType::kF8E4M3 || dtype_ == DType::kF8E5M2 || dtype_ == DType::kBool));
  TRIPTYCH_CHECK(dtype_ == wanted || as_bits, "tensor {} is {}, not {}", to_string(shape_), to_string(dtype_),
                 to_string(wanted));
}

TensorView TensorView::rows(std::int64_t begin, std::int64_t end) const {
  TRIPTYCH_CHECK(rank() >= 1 && 0 <= begin && begin <= end && end <= dim(0), "rows [{}, {}) of {}", begin,
                 end, to_string(shape_));
  TensorView out = *this;
  out.shape_ = shape_.with_dim(0, end - begin);
  if (begin != end) out.data_ += index_of(begin * strides_[0]) * triptych::size_bytes(dtype_);
  return out;
}

TensorView TensorView::row(std::int64_t i) const {
  TRIPTYCH_CHECK(rank() >= 1 && 0 <= i && i < dim(0), "row {} of {}", i, to_string(shape_));
  TensorView out = *this;
  out.data_ += index_of(i * strides_[0]) * triptych::size_bytes(dtype_);
  out.shape_ = Shape(shape_.dims().subspan(1));
  for (std::size_t d = 0; d + 1 < strides_.size(); ++d) out.strides_[d] = strides_[d + 1];
  return out;
}

TensorView TensorView::cols(std::int64_t begin, std::int64_t end) const {
  TRIPTYCH_CHECK(rank() >= 1 && 0 <= begin && begin <= end && end <= dim(-1), "columns [{}, {}) of {}", begin,
                 end, to_string(shape_));
  TensorView out = *this;
  out.shape_ = shape_.with_dim(-1, end - begin);
  if (begin != end) out.data_ += index_of(begin) * triptych::size_bytes(dtype_);
  return out;
}

TensorView TensorView::reshape(const Shape& shape) const {
  TRIPTYCH_CHECK(shape.numel() == numel(), "reshape {} to {}", to_string(shape_), to_string(shape));
  TRIPTYCH_CHECK(is_contiguous(), "reshape of a strided {} to {}", to_string(shape_), to_string(shape));
  return TensorView(data_, dtype_, shape, kind_);
}

TensorView TensorView::split_last(std::int64_t a, std::int64_t b) const {
  TRIPTYCH_CHECK(
      rank() >= 1 && rank() < Shape::kMaxRank && a >= 0 && b >= 0 && Shape({a, b}).numel() == dim(-1),
      "split of {} into {} x {}", to_string(shape_), a, b);
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  const std::size_t last = index_of(rank() - 1);
  for (std::size_t i = 0; i < last; ++i) dims[i] = shape_.dims()[i];
  dims[last] = a;
  dims[last + 1] = b;
  TensorView out = *this;
  out.shape_ = Shape(std::span<const std::int64_t>(dims.data(), last + 2));
  out.strides_[last] = b;
  out.strides_[last + 1] = 1;
  return out;
}

TensorView TensorView::merge_last() const {
  TRIPTYCH_CHECK(rank() >= 2 && (stride(-2) == dim(-1) || dim(-2) == 1 || numel() == 0),
                 "merge of the last two dimensions of a strided {}", to_string(shape_));
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  const std::size_t last = index_of(rank() - 2);
  for (std::size_t i = 0; i < last; ++i) dims[i] = shape_.dims()[i];
  dims[last] = dim(-2) * dim(-1);
  TensorView out = *this;
  out.shape_ = Shape(std::span<const std::int64_t>(dims.data(), last + 1));
  out.strides_[last] = 1;
  out.strides_[last + 1] = 0;
  return out;
}

TensorView TensorView::merge_first() const {
  TRIPTYCH_CHECK(rank() >= 2 && (stride(0) == dim(1) * stride(1) || dim(0) == 1 || numel() == 0),
                 "merge of the first two dimensions of a strided {}", to_string(shape_));
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  dims[0] = dim(0) * dim(1);
  for (int i = 2; i < rank(); ++i) dims[index_of(i - 1)] = dim(i);
  TensorView out = *this;
  out.shape_ = Shape(std::span<const std::int64_t>(dims.data(), index_of(rank() - 1)));
  for (std::size_t i = 0; i + 1 < strides_.size(); ++i) out.strides_[i] = strides_[i + 1];
  return out;
}

Buffer Buffer::allocate(std::size_t size_bytes) {
  Buffer out;
  if (size_bytes == 0) return out;
  out.data_ = MemoryPool::process().allocate(size_bytes);
  out.owner_ = std::shared_ptr<const void>(out.data_, release);
  out.size_bytes_ = size_bytes;
  return out;
}

Buffer Buffer::zeros(std::size_t size_bytes) {
  Buffer out = allocate(size_bytes);
  if (size_bytes != 0) std::memset(out.data_, 0, size_bytes);
  return out;
}

Buffer Buffer::wrap(std::shared_ptr<const void> owner, const void* data, std::size_t size_bytes,
                    MemoryKind kind) {
  Buffer out;
  out.owner_ = std::move(owner);
  out.data_ = static_cast<std::byte*>(const_cast<void*>(data));
  out.size_bytes_ = size_bytes;
  out.kind_ = kind;
  return out;
}

Buffer::Buffer(Buffer&& other) noexcept
    : owner_(std::move(other.owner_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      kind_(std::exchange(other.kind_, MemoryKind::kHost)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer taken(std::move(other));
  std::swap(owner_, taken.owner_);
  std::swap(data_, taken.data_);
  std::swap(size_bytes_, taken.size_bytes_);
  std::swap(kind_, taken.kind_);
  return *this;
}

namespace {

std::size_t checked_bytes(DType dtype, const Shape& shape) {
  const auto numel = static_cast<std::size_t>(shape.numel());
  const std::size_t element = size_bytes(dtype);
  if (numel > SIZE_MAX / 2 / element)
    fail(ErrorCode::kOutOfMemory, "no memory for a tensor {} of {}", to_string(shape), to_string(dtype));
  return numel * element;
}

}  // namespace

Tensor::Tensor(DType dtype, const Shape& shape)
    : buffer_(Buffer::allocate(checked_bytes(dtype, shape))), view_(buffer_.data(), dtype, shape) {}

Tensor::Tensor(Buffer buffer, DType dtype, const Shape& shape)
    : buffer_(std::move(buffer)), view_(buffer_.data(), dtype, shape, buffer_.kind()) {
  TRIPTYCH_CHECK(checked_bytes(dtype, shape) <= buffer_.size_bytes(), "a tensor {} of {} in {} bytes",
                 to_string(shape), to_string(dtype), buffer_.size_bytes());
}

Tensor Tensor::zeros(DType dtype, const Shape& shape) {
  Tensor out(dtype, shape);
  fill_zero(out);
  return out;
}

Tensor Tensor::copy_of(const TensorView& view) {
  Tensor out(view.dtype(), view.shape());
  copy(view, out);
  return out;
}

void copy(const TensorView& from, const TensorView& to) {
  TRIPTYCH_CHECK(from.shape() == to.shape() && from.dtype() == to.dtype(), "copy of {} {} to {} {}",
                 to_string(from.dtype()), to_string(from.shape()), to_string(to.dtype()),
                 to_string(to.shape()));
  check_host("a copy", from);
  check_host("a copy", to);
  const std::size_t element = size_bytes(from.dtype());
  for_each_row(from, to, [element](const std::byte* source, std::byte* target, std::int64_t n) {
    std::memmove(target, source, index_of(n) * element);
  });
}

void fill_zero(const TensorView& to) {
  check_host("zeroing", to);
  const std::size_t element = size_bytes(to.dtype());
  for_each_row(to, to, [element](std::byte* target, std::byte*, std::int64_t n) {
    std::memset(target, 0, index_of(n) * element);
  });
}

}  // namespace triptych
