// The comparisons themselves; whole models are compared in tests/parity.
#include "cli/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace triptych::cli {
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
  EXPECT_EQ(compare_greedy(tensor({2, 2}, {0.0F, 0.3F, 1.0F, 0.5F}), golden).n_equal, 2);
  // Off by 0.15 on either side: the two logits may have changed places.
  GreedyReport near = compare_greedy(tensor({2, 2}, {0.15F, 0.1F, 1.0F, 0.0F}), golden);
  EXPECT_EQ(near.n_equal, 1);
  EXPECT_EQ(near.first_different, 0);
  EXPECT_TRUE(near.passed);
  // With the margins of the file left out they follow from its logits.
  golden.margins.clear();
  EXPECT_TRUE(compare_greedy(tensor({2, 2}, {0.15F, 0.1F, 1.0F, 0.0F}), golden).passed);
  // A large margin is no coin toss.
  golden.margins = {0.2, 9.0};
  const GreedyReport far = compare_greedy(tensor({2, 2}, {0.0F, 0.2F, 0.0F, 1.0F}), golden);
  EXPECT_EQ(far.first_different, 1);
  EXPECT_FALSE(far.passed);
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
}  // namespace triptych::cli
