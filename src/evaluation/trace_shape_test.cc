#include "evaluation/trace_shape.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

std::vector<MediaItem> items(const std::vector<Shape>& shapes) {
  std::vector<MediaItem> out;
  float value = 0;
  for (const Shape& shape : shapes) {
    MediaItem& item = out.emplace_back();
    item.pixels = Tensor(DType::kF32, shape);
    for (std::int64_t i = 0; i < shape.numel(); ++i) item.pixels.f32()[i] = value++;
  }
  return out;
}

TEST(TraceShape, BatchDimensions) {
  EXPECT_EQ(n_stacked_pictures(items({{3, 2, 2}, {3, 2, 2}})), 2);
  EXPECT_EQ(n_stacked_pictures(items({{5, 3, 2, 2}})), 5);
  EXPECT_EQ(n_stacked_pictures(items({{6, 4}})), 0);
  EXPECT_EQ(batched_shape(38, 96, 38, 1), (Shape{1, 38, 96}));  // tokens of the prompt
  EXPECT_EQ(batched_shape(26, 72, 38, 1), (Shape{1, 26, 72}));
  EXPECT_EQ(batched_shape(130, 72, 161, 5), (Shape{5, 26, 72}));
  EXPECT_EQ(batched_shape(5, 72, 161, 5), (Shape{5, 72}));  // one pooled row a tile
  EXPECT_EQ(batched_shape(120, 72, 60, 0), (Shape{120, 72}));
}

TEST(TraceShape, PixelsOfSeveralItems) {
  const auto stacked = batch_pixels(items({{1, 2, 2}, {1, 2, 2}}));
  ASSERT_EQ(stacked.size(), 1U);
  EXPECT_EQ(stacked[0].shape(), (Shape{2, 1, 2, 2}));
  EXPECT_EQ(stacked[0].f32()[7], 7.0F);
  const auto rows = batch_pixels(items({{2, 2}, {1, 2}}));
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].shape(), (Shape{3, 2}));
  EXPECT_EQ(rows[0].f32()[5], 5.0F);
  EXPECT_EQ(batch_pixels(items({{2, 3, 2, 2}, {1, 3, 2, 2}})).size(), 2U);
}

}  // namespace
}  // namespace triptych
