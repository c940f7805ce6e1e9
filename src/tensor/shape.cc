#include "tensor/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace triptych {

Shape::Shape(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(kMaxRank))
    fail(ErrorCode::kInvalidArgument, "shape: expected at most {} dimensions, got {}", kMaxRank, dims.size());
  std::int64_t product = 1;
  for (const std::int64_t size : dims) {
    if (size < 0) fail(ErrorCode::kInvalidArgument, "shape [{}]: a size is negative", fmt::join(dims, ", "));
    const std::int64_t factor = std::max<std::int64_t>(size, 1);
    if (product > std::numeric_limits<std::int64_t>::max() / factor)
      fail(ErrorCode::kInvalidArgument, "shape [{}]: the number of elements overflows",
           fmt::join(dims, ", "));
    product *= factor;
    dims_[static_cast<std::size_t>(rank_++)] = size;
  }
}

std::int64_t Shape::dim(int i) const {
  const int index = i < 0 ? i + rank_ : i;
  TRIPTYCH_CHECK(index >= 0 && index < rank_, "dimension {} of shape {}", i, to_string(*this));
  return dims_[static_cast<std::size_t>(index)];
}

std::int64_t Shape::numel() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t size : dims()) product *= size;
  return product;
}

Shape Shape::with_dim(int i, std::int64_t size) const {
  const int index = i < 0 ? i + rank_ : i;
  TRIPTYCH_CHECK(index >= 0 && index < rank_, "dimension {} of shape {}", i, to_string(*this));
  std::array<std::int64_t, kMaxRank> dims = dims_;
  dims[static_cast<std::size_t>(index)] = size;
  return Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(rank_)));
}

bool Shape::operator==(const Shape& other) const noexcept {
  return std::equal(dims().begin(), dims().end(), other.dims().begin(), other.dims().end());
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.dims(), ", ")); }

}  // namespace triptych
