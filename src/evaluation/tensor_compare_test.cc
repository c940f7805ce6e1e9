#include "evaluation/tensor_compare.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace triptych {
namespace {

TensorView view(std::vector<float>& values, const Shape& shape) {
  return {values.data(), DType::kF32, shape};
}

TEST(CompareTensors, LargestErrorRelativeToLargestMagnitude) {
  std::vector<float> a{1.0F, 2.0F, -8.0F, 0.5F}, b{1.0F, 2.5F, -8.0F, 0.25F};
  const Difference d = compare_tensors(view(a, {2, 2}), view(b, {1, 2, 2}));
  EXPECT_EQ(d.problem, "");
  EXPECT_DOUBLE_EQ(d.max_abs, 0.5);
  EXPECT_DOUBLE_EQ(d.largest, 8.0);
  EXPECT_EQ(d.at, 1);
  EXPECT_DOUBLE_EQ(d.relative(), 0.0625);
  EXPECT_TRUE(d.within(0.0625));
  EXPECT_FALSE(d.within(0.06));
}

TEST(CompareTensors, ChannelsFirstReference) {
  // Two pictures, C = 3, a grid of 1 x 2: ours [4, 3].
  std::vector<float> ours, reference(12);
  for (int i = 0; i < 12; ++i) ours.push_back(static_cast<float>(i));
  for (int n = 0; n < 2; ++n)
    for (int c = 0; c < 3; ++c)
      for (int p = 0; p < 2; ++p)
        reference[static_cast<std::size_t>((n * 3 + c) * 2 + p)] =
            ours[static_cast<std::size_t>((n * 2 + p) * 3 + c)];
  EXPECT_EQ(compare_tensors(view(ours, {4, 3}), view(reference, {2, 3, 1, 2})).max_abs, 0.0);
  // The same numbers read as plain rows are something else.
  EXPECT_GT(compare_tensors(view(ours, {6, 2}), view(reference, {6, 2})).max_abs, 0.0);
}

TEST(CompareTensors, ShapesAndNumbersThatCannotBeCompared) {
  std::vector<float> a(6, 1.0F), b(6, 1.0F);
  EXPECT_EQ(compare_tensors(view(a, {2, 2}), view(b, {6})).problem, "shape [2, 2] against [6]");
  EXPECT_EQ(compare_tensors(view(a, {2, 3}), view(b, {3, 2})).problem, "shape [2, 3] against [3, 2]");
  a[4] = std::numeric_limits<float>::quiet_NaN();
  const Difference d = compare_tensors(view(a, {2, 3}), view(b, {2, 3}));
  EXPECT_EQ(d.problem, "1 of 6 values are not finite");
  EXPECT_FALSE(d.within(1.0));
  // A reference that has the same infinity there is met.
  a[4] = b[4] = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(compare_tensors(view(a, {2, 3}), view(b, {2, 3})).within(0.0));
}

TEST(CompareTensors, MergeKeepsTheWorse) {
  std::vector<float> a{1.0F}, b{1.5F}, c{4.0F};
  Difference d = compare_tensors(view(a, {1}), view(a, {1}));
  d.merge(compare_tensors(view(a, {1}), view(b, {1})));
  EXPECT_DOUBLE_EQ(d.max_abs, 0.5);
  d.merge(compare_tensors(view(a, {1}), view(c, {1})));
  EXPECT_DOUBLE_EQ(d.relative(), 0.75);
  std::vector<float> two(2);
  d.merge(compare_tensors(view(two, {2}), view(a, {1})));
  d.merge(compare_tensors(view(a, {1}), view(a, {1})));
  EXPECT_FALSE(d.problem.empty());
}

}  // namespace
}  // namespace triptych
