// The comparisons themselves; whole models are compared in tests/parity.
#include "evaluation/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace triptych {
namespace {

Tensor tensor(const Shape& shape, const std::vector<float>& values) {
  Tensor out(DType::kF32, shape);
  std::copy(values.begin(), values.end(), out.f32());
  return out;
}

MediaItem item(const Shape& shape, const std::vector<float>& values) {
  MediaItem out;
  out.pixels = tensor(shape, values);
  return out;
}

TEST(ComparePixels, OneEntryAnItemPaddedWithZeros) {
  std::vector<MediaItem> items;
  items.push_back(item({2, 1, 2}, {1, 2, 3, 4}));
  items.push_back(item({1, 1, 2}, {5, 6}));
  const Tensor good = tensor({2, 2, 1, 2}, {1, 2, 3, 4, 5, 6, 0, 0});
  EXPECT_TRUE(compare_pixels(items, good).within(0.0));
  const Tensor not_zero = tensor({2, 2, 1, 2}, {1, 2, 3, 4, 5, 6, 0, 1});
  EXPECT_EQ(compare_pixels(items, not_zero).max_abs, 1.0);
  const Tensor wrong = tensor({2, 2, 1, 2}, {1, 2, 3, 4, 5, 7, 0, 0});
  EXPECT_EQ(compare_pixels(items, wrong).max_abs, 1.0);
  const Tensor too_small = tensor({2, 1, 1, 2}, {1, 2, 5, 6});
  EXPECT_FALSE(compare_pixels(items, too_small).problem.empty());
}

TEST(ComparePixels, RowsOneAfterAnother) {
  std::vector<MediaItem> items;
  items.push_back(item({2, 2}, {1, 2, 3, 4}));
  items.push_back(item({1, 2}, {5, 6}));
  EXPECT_TRUE(compare_pixels(items, tensor({3, 2}, {1, 2, 3, 4, 5, 6})).within(0.0));
  EXPECT_FALSE(compare_pixels(items, tensor({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})).problem.empty());
  EXPECT_FALSE(compare_pixels(items, tensor({2, 2}, {1, 2, 3, 4})).problem.empty());
  EXPECT_FALSE(compare_pixels({}, tensor({1, 2}, {1, 2})).problem.empty());
}

TEST(CompareGreedy, ADifferenceIsExcusedOnlyBelowTheError) {
  GoldenCase golden;
  golden.generated_ids = {1, 0};
  const Tensor reference = tensor({2, 2}, {0.0F, 0.2F, 1.0F, 0.0F});
  golden.step_logits = reference.view();
  golden.margins = {0.2, 1.0};
  const GreedyReport equal = compare_greedy(tensor({2, 2}, {0.0F, 0.3F, 1.0F, 0.5F}), golden);
  EXPECT_EQ(equal.n_equal, 2);
  EXPECT_EQ(equal.n_decided, 2);
  EXPECT_EQ(equal.n_decided_equal, 2);
  // Off by 0.25, more than the margin of 0.2: the step decides nothing.
  GreedyReport near = compare_greedy(tensor({2, 2}, {0.25F, 0.2F, 1.0F, 0.0F}), golden);
  EXPECT_EQ(near.n_equal, 1);
  EXPECT_EQ(near.n_decided, 1);
  EXPECT_EQ(near.first_different, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(near.error), 0.25F);
  EXPECT_TRUE(near.passed);
  // With the margins of the file left out they follow from its logits.
  golden.margins.clear();
  near = compare_greedy(tensor({2, 2}, {0.25F, 0.2F, 1.0F, 0.0F}), golden);
  EXPECT_TRUE(near.passed);
  EXPECT_NEAR(near.margin, 0.2, 1e-6);
  // Off by 0.15 on either side, less than the margin: the token must be the reference's.
  for (const std::vector<double>& margins : {std::vector<double>{0.2, 1.0}, std::vector<double>{}}) {
    golden.margins = margins;
    const GreedyReport far = compare_greedy(tensor({2, 2}, {0.15F, 0.1F, 1.0F, 0.0F}), golden);
    EXPECT_EQ(far.n_decided, 2);
    EXPECT_EQ(far.n_decided_equal, 1);
    EXPECT_FALSE(far.passed);
  }
  golden.margins = {0.2, 9.0};
  const GreedyReport swapped = compare_greedy(tensor({2, 2}, {0.0F, 0.2F, 0.0F, 1.0F}), golden);
  EXPECT_EQ(swapped.first_different, 1);
  EXPECT_FALSE(swapped.passed);
}

TEST(CompareGreedy, TheFirstOfEqualLogitsCounts) {
  GoldenCase golden;
  golden.generated_ids = {0};
  EXPECT_EQ(compare_greedy(tensor({1, 3}, {2.0F, 2.0F, 1.0F}), golden).n_equal, 1);
}

TEST(ComparePrompts, PlaceholdersMayBeMissingFromTheReference) {
  ModelInfo info;
  info.image_placeholder = "<image>";
  EXPECT_EQ(compare_prompts("a<image>b", "a<image>b", info), "");
  EXPECT_EQ(compare_prompts("<image>What?\n", "What?\n", info), "");
  EXPECT_THAT(compare_prompts("<image>What?", "What", info), testing::HasSubstr("differs at byte 0"));
  // A reference that does show them must be met exactly.
  EXPECT_NE(compare_prompts("<image><image>a", "<image>a", info), "");
}

}  // namespace
}  // namespace triptych
