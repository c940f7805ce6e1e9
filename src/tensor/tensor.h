// Memory and views of it. Buffer owns bytes (or keeps alive bytes that something else owns, such as a mapped
// file); TensorView borrows them and gives them a type and a shape; Tensor is both together.
//
// A view is row-major with its own stride per dimension. The last dimension is always dense (stride 1), so a
// row is a plain array; leading strides may be larger, which is how a slice of columns or of heads is
// written. Operations take views by value. A view of a mapped file must not be written to: the memory is
// read-only.
//
// Memory has a kind. What lies in a device's memory has an address like everything else, but only the
// backend's operations may read or write it: typed access (f32, as) throws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace triptych {

enum class MemoryKind : std::uint8_t {
  kHost,    // this processor reads and writes it
  kDevice,  // only operations of the backend that allocated it do
};

class TensorView {
 public:
  /// An empty view: no data, shape [0].
  TensorView() noexcept : shape_({0}) { strides_[0] = 1; }
  /// Contiguous view of numel * size_bytes(dtype) bytes at `data`.
  TensorView(void* data, DType dtype, const Shape& shape, MemoryKind kind = MemoryKind::kHost);
  /// View with strides in elements, one per dimension; the last must be 1 (or the rank 0).
  TensorView(void* data, DType dtype, const Shape& shape, std::span<const std::int64_t> strides);
  /// The same for memory that must only be read.
  static TensorView of_const(const void* data, DType dtype, const Shape& shape);

  bool empty() const noexcept { return data_ == nullptr || numel() == 0; }
  std::byte* data() const noexcept { return data_; }
  const void* cdata() const noexcept { return data_; }
  DType dtype() const noexcept { return dtype_; }
  MemoryKind kind() const noexcept { return kind_; }
  /// The same bytes under another kind: for backends, whose operations reach what the kind forbids to others.
  TensorView as_kind(MemoryKind kind) const noexcept {
    TensorView out = *this;
    out.kind_ = kind;
    return out;
  }
  const Shape& shape() const noexcept { return shape_; }
  int rank() const noexcept { return shape_.rank(); }
  std::int64_t dim(int i) const { return shape_.dim(i); }
  std::int64_t numel() const noexcept { return shape_.numel(); }
  /// Bytes of the elements (not of the gaps between rows).
  std::size_t size_bytes() const noexcept;
  /// Stride of dimension `i` in elements; negative counts from the end.
  std::int64_t stride(int i) const;
  /// Distance between rows (of the first dimension) in elements; for rank 1 the row is the whole view.
  std::int64_t row_stride() const noexcept { return rank() >= 2 ? strides_[0] : numel(); }
  bool is_contiguous() const noexcept;

  /// Elements as T; checks the dtype and that they lie in host memory (TRIPTYCH_CHECK). uint16_t also serves
  /// F16 and BF16, uint8_t the 8-bit floats and bool.
  template <typename T>
  T* as() const {
    check_access(dtype_of<T>);
    return reinterpret_cast<T*>(data_);
  }
  float* f32() const { return as<float>(); }
  const float* cf32() const { return as<float>(); }
  /// First element of row `i` of the first dimension, as T.
  template <typename T>
  T* row_as(std::int64_t i) const {
    return row(i).template as<T>();
  }

  /// [begin, end) of the first dimension.
  TensorView rows(std::int64_t begin, std::int64_t end) const;
  /// Entry `i` of the first dimension; the rank drops by one.
  TensorView row(std::int64_t i) const;
  /// [begin, end) of the last dimension.
  TensorView cols(std::int64_t begin, std::int64_t end) const;
  /// Other shape, same elements; only when contiguous.
  TensorView reshape(const Shape& shape) const;
  /// [..., a*b] -> [..., a, b]; works for strided views too: [T, H*Dh] -> [T, H, Dh].
  TensorView split_last(std::int64_t a, std::int64_t b) const;
  /// [..., a, b] -> [..., a*b]; rows of the second last dimension must follow each other without a gap.
  TensorView merge_last() const;
  /// [a, b, ...] -> [a*b, ...]; likewise.
  TensorView merge_first() const;

 private:
  void check_access(DType wanted) const;

  std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  MemoryKind kind_ = MemoryKind::kHost;
  Shape shape_;
  std::array<std::int64_t, Shape::kMaxRank> strides_{};
};

/// Owns memory, or keeps its owner alive. Move-only.
class Buffer {
 public:
  static constexpr std::size_t kAlignment_bytes = 64;

  Buffer() = default;
  /// New memory of the process's pool (base/memory_pool.h), 64-byte aligned, not initialised, in huge pages
  /// from 2 MiB on where the system grants them.
  /// Throws Error(kOutOfMemory).
  static Buffer allocate(std::size_t size_bytes);
  /// The same, zeroed.
  static Buffer zeros(std::size_t size_bytes);
  /// Memory that lives as long as `owner` (a mapped file, device memory with its own deleter).
  static Buffer wrap(std::shared_ptr<const void> owner, const void* data, std::size_t size_bytes,
                     MemoryKind kind = MemoryKind::kHost);

  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const noexcept { return data_; }
  std::size_t size_bytes() const noexcept { return size_bytes_; }
  MemoryKind kind() const noexcept { return kind_; }
  /// Whoever holds this keeps the bytes alive after the Buffer is gone.
  const std::shared_ptr<const void>& owner() const noexcept { return owner_; }

 private:
  std::shared_ptr<const void> owner_;
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kHost;
};

/// A buffer and a contiguous view of it. Move-only; converts to the view.
class Tensor {
 public:
  Tensor() = default;
  /// In host memory, not initialised.
  Tensor(DType dtype, const Shape& shape);
  /// The first numel * size_bytes(dtype) bytes of `buffer`, which holds so many (TRIPTYCH_CHECK).
  Tensor(Buffer buffer, DType dtype, const Shape& shape);
  static Tensor zeros(DType dtype, const Shape& shape);
  /// A contiguous copy of any view of host memory.
  static Tensor copy_of(const TensorView& view);

  const TensorView& view() const noexcept { return view_; }
  operator TensorView() const noexcept { return view_; }  // NOLINT: a tensor is used as its view
  const Buffer& buffer() const noexcept { return buffer_; }
  const Shape& shape() const noexcept { return view_.shape(); }
  DType dtype() const noexcept { return view_.dtype(); }
  float* f32() const { return view_.f32(); }

 private:
  Buffer buffer_;
  TensorView view_;
};

/// Copies elements between views of host memory of equal shape and dtype; strides may differ.
void copy(const TensorView& from, const TensorView& to);

/// Sets every byte of every element to zero. Host memory.
void fill_zero(const TensorView& to);

}  // namespace triptych
