// ConvertedWeights: matrices change their type, vectors do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>

#include "base/half.h"
#include "weights/weight_providers.h"

namespace triptych {
namespace {

TEST(ConvertedWeights, MatricesOnly) {
  WeightTable table;
  auto matrix = std::make_shared<Tensor>(DType::kF32, Shape{2, 2});
  auto vector = std::make_shared<Tensor>(DType::kF32, Shape{2});
  const float values[] = {1.0F, 1.00390625F, -3.14159265F, 65520.0F};
  std::copy_n(values, 4, matrix->f32());
  std::copy_n(values, 2, vector->f32());
  table.add({"m", matrix->view(), matrix, "file"});
  table.add({"v", vector->view(), vector, "file"});
  ConvertedWeights weights(std::make_unique<TableWeights>(table), DType::kBF16);

  const WeightEntry m = weights.get("m", {2, 2});
  ASSERT_EQ(m.view.dtype(), DType::kBF16);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(m.view.as<std::uint16_t>()[i], f32_to_bf16(values[i])) << i;
  EXPECT_EQ(weights.unused(), std::vector<std::string>{"v"});
  EXPECT_EQ(weights.get("v", {2}).view.data(), vector->view().data());
  EXPECT_THROW(weights.get("m", {4, 1}), std::exception);

  ConvertedWeights same(std::make_unique<TableWeights>(table), DType::kF32);
  EXPECT_EQ(same.get("m", {2, 2}).view.data(), matrix->view().data());  // nothing to convert: in place
}

}  // namespace
}  // namespace triptych
