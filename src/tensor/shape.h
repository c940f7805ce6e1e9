// The sizes of a tensor's dimensions. Every Shape that exists is sound: at most 8 dimensions, none negative,
// and the number of elements fits in 63 bits, so that code below needs no overflow checks of its own.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace triptych {

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  /// Rank 0: a scalar, one element.
  Shape() = default;
  /// Throws Error(kInvalidArgument) for a rank above kMaxRank, a negative size, or a product that overflows
  /// (a size of 0 counts as 1 there, so that strides never overflow either).
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const noexcept { return rank_; }
  /// Size of dimension `i`; negative counts from the end (-1 is the last). TRIPTYCH_CHECKs the range.
  std::int64_t dim(int i) const;
  /// Number of elements; 1 for rank 0.
  std::int64_t numel() const noexcept;
  std::span<const std::int64_t> dims() const noexcept {
    return {dims_.data(), static_cast<std::size_t>(rank_)};
  }

  /// The same shape with dimension `i` (negative from the end) replaced.
  Shape with_dim(int i, std::int64_t size) const;

  bool operator==(const Shape& other) const noexcept;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// "[2, 3]"; "[]" for rank 0.
std::string to_string(const Shape& shape);

}  // namespace triptych
