#include "tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace triptych {
namespace {

using testing::ElementsAre;

TEST(DType, NamesAndSizes) {
  const std::pair<DType, std::size_t> sizes[] = {
      {DType::kF32, 4}, {DType::kF16, 2}, {DType::kBF16, 2}, {DType::kF64, 8},    {DType::kI8, 1},
      {DType::kU8, 1},  {DType::kI16, 2}, {DType::kU16, 2},  {DType::kI32, 4},    {DType::kU32, 4},
      {DType::kI64, 8}, {DType::kU64, 8}, {DType::kBool, 1}, {DType::kF8E4M3, 1}, {DType::kF8E5M2, 1}};
  for (const auto& [dtype, size] : sizes) {
    EXPECT_EQ(size_bytes(dtype), size);
    EXPECT_EQ(dtype_from_safetensors(to_string(dtype)), dtype);
    const std::string name(to_string(dtype));
    EXPECT_EQ(is_float(dtype), name[0] == 'F' || name[0] == 'B' ? name != "BOOL" : false) << name;
  }
  EXPECT_EQ(to_string(DType::kF8E4M3), "F8_E4M3");
  EXPECT_FALSE(dtype_from_safetensors("f32"));
  EXPECT_FALSE(dtype_from_safetensors(""));
}

TEST(Shape, Basics) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(shape.dim(-1), 4);
  EXPECT_EQ(to_string(shape), "[2, 3, 4]");
  EXPECT_EQ(shape, (Shape{2, 3, 4}));
  EXPECT_NE(shape, (Shape{2, 3}));
  EXPECT_NE(Shape{}, Shape{1});
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(shape.with_dim(-2, 7), (Shape{2, 7, 4}));
  EXPECT_EQ((Shape{5, 0, 3}).numel(), 0);
  EXPECT_THROW(shape.dim(3), Error);
  EXPECT_THROW(shape.dim(-4), Error);
}

TEST(Shape, RefusesWhatCannotBe) {
  const std::int64_t big = std::int64_t{1} << 31;
  EXPECT_THROW((Shape{2, -1}), Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW((Shape{big, big, 2}), Error);
  EXPECT_THROW((Shape{0, big, big, 2}), Error);
  EXPECT_EQ((Shape{big, big - 1}).numel(), big * (big - 1));
  EXPECT_EQ((Shape{std::numeric_limits<std::int64_t>::max()}).numel(),
            std::numeric_limits<std::int64_t>::max());
}

// A [rows, cols] view of 0, 1, 2, ...
struct Counting {
  explicit Counting(const Shape& shape) : data(static_cast<std::size_t>(shape.numel())) {
    std::iota(data.begin(), data.end(), 0.0f);
    view = TensorView(data.data(), DType::kF32, shape);
  }
  std::vector<float> data;
  TensorView view;
};

std::vector<float> values(const TensorView& view) {
  const Tensor dense = Tensor::copy_of(view);
  return {dense.f32(), dense.f32() + dense.view().numel()};
}

TEST(TensorView, SlicesShareMemory) {
  Counting t({4, 6});
  EXPECT_TRUE(t.view.is_contiguous());
  EXPECT_EQ(t.view.row_stride(), 6);
  EXPECT_EQ(t.view.size_bytes(), 96u);
  const TensorView rows = t.view.rows(1, 3);
  EXPECT_EQ(rows.shape(), (Shape{2, 6}));
  EXPECT_TRUE(rows.is_contiguous());
  EXPECT_EQ(rows.f32()[0], 6);
  const TensorView cols = rows.cols(2, 4);
  EXPECT_EQ(cols.shape(), (Shape{2, 2}));
  EXPECT_FALSE(cols.is_contiguous());
  EXPECT_EQ(cols.row_stride(), 6);
  EXPECT_THAT(values(cols), ElementsAre(8, 9, 14, 15));
  EXPECT_EQ(cols.row(1).shape(), (Shape{2}));
  EXPECT_TRUE(cols.row(1).is_contiguous());
  EXPECT_EQ(cols.row_as<float>(1)[1], 15);
  *cols.row_as<float>(1) = -1;
  EXPECT_EQ(t.data[14], -1);
  EXPECT_TRUE(t.view.rows(4, 4).empty());
  EXPECT_TRUE(cols.rows(1, 2).is_contiguous());  // one row has no gaps
}

TEST(TensorView, SplitAndMerge) {
  Counting t({3, 8});
  const TensorView heads = t.view.cols(2, 8).split_last(3, 2);
  EXPECT_EQ(heads.shape(), (Shape{3, 3, 2}));
  EXPECT_FALSE(heads.is_contiguous());
  EXPECT_THAT(values(heads.row(1)), ElementsAre(10, 11, 12, 13, 14, 15));
  EXPECT_EQ(heads.merge_last().shape(), (Shape{3, 6}));
  EXPECT_THAT(values(heads.merge_last().row(2)), ElementsAre(18, 19, 20, 21, 22, 23));
  EXPECT_THROW(heads.merge_first(), Error);
  EXPECT_THROW(heads.cols(0, 1).merge_last(), Error);
  EXPECT_EQ(t.view.split_last(4, 2).merge_first().shape(), (Shape{12, 2}));
  EXPECT_EQ(t.view.reshape({2, 12}).row_as<float>(1)[0], 12);
  EXPECT_EQ(t.view.reshape({24}).rank(), 1);
}

TEST(TensorView, ChecksArguments) {
  Counting t({4, 6});
  EXPECT_THROW(t.view.rows(2, 1), Error);
  EXPECT_THROW(t.view.rows(0, 5), Error);
  EXPECT_THROW(t.view.rows(-1, 2), Error);
  EXPECT_THROW(t.view.row(4), Error);
  EXPECT_THROW(t.view.cols(0, 7), Error);
  EXPECT_THROW(t.view.reshape({5, 5}), Error);
  EXPECT_THROW(t.view.cols(0, 2).reshape({8}), Error);
  EXPECT_THROW(t.view.split_last(4, 2), Error);
  EXPECT_THROW(t.view.as<std::int32_t>(), Error);
  EXPECT_THROW(TensorView().row(0), Error);
  const std::int64_t strides[] = {12, 2};
  EXPECT_THROW(TensorView(t.data.data(), DType::kF32, {2, 3}, strides), Error);
  std::uint16_t bits[2] = {};
  EXPECT_EQ(TensorView(bits, DType::kBF16, {2}).as<std::uint16_t>(), bits);
  EXPECT_THROW(TensorView(bits, DType::kBF16, {2}).f32(), Error);
}

TEST(TensorView, EmptyAndScalar) {
  EXPECT_TRUE(TensorView().empty());
  EXPECT_EQ(TensorView().shape(), Shape({0}));
  float x = 3;
  const TensorView scalar(&x, DType::kF32, {});
  EXPECT_FALSE(scalar.empty());
  EXPECT_TRUE(scalar.is_contiguous());
  EXPECT_EQ(scalar.row_stride(), 1);
  EXPECT_EQ(Tensor::copy_of(scalar).f32()[0], 3);
  EXPECT_TRUE(Tensor(DType::kF32, {0, 4}).view().empty());
}

TEST(Tensor, CopyAndZeroRespectStrides) {
  Counting t({3, 4});
  fill_zero(t.view.cols(1, 3));
  EXPECT_THAT(t.data, ElementsAre(0, 0, 0, 3, 4, 0, 0, 7, 8, 0, 0, 11));
  Counting from({3, 2});
  copy(from.view, t.view.cols(2, 4));
  EXPECT_THAT(t.data, ElementsAre(0, 0, 0, 1, 4, 0, 2, 3, 8, 0, 4, 5));
  EXPECT_THROW(copy(from.view, t.view), Error);
  const Tensor zeros = Tensor::zeros(DType::kI8, {5});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(zeros.view().as<std::int8_t>()[i], 0);
}

TEST(Buffer, IsAlignedMovesAndKeepsOwnersAlive) {
  for (const std::size_t size : {1u, 63u, 64u, 65u, 1000u}) {
    const Buffer buffer = Buffer::allocate(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_EQ(buffer.size_bytes(), size);
  }
  Buffer a = Buffer::zeros(8);
  const std::byte* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: a moved-from buffer is empty
  EXPECT_EQ(a.size_bytes(), 0u);
  a = std::move(b);
  EXPECT_EQ(a.data(), data);

  auto owner = std::make_shared<int>(5);
  Buffer wrapped = Buffer::wrap(owner, owner.get(), sizeof(int));
  EXPECT_EQ(owner.use_count(), 2);
  const std::shared_ptr<const void> kept = wrapped.owner();
  wrapped = Buffer();
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_EQ(Buffer::allocate(0).data(), nullptr);
  try {
    Buffer::allocate(std::numeric_limits<std::size_t>::max());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
  EXPECT_THROW(Tensor(DType::kF64, {std::numeric_limits<std::int64_t>::max()}), Error);
}

}  // namespace
}  // namespace triptych
