#include "nn/qwen_vision.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <set>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace triptych {
namespace {

using ::testing::ElementsAre;

VisionFrame frame(int grid_h, int grid_w) { return {.patches = {}, .grid_h = grid_h, .grid_w = grid_w}; }

class QwenVision : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  Arena arena_;
  ExecContext cx_{*backend_, arena_};
};

// A frame of 12 x 20 patches, 6 x 10 merge blocks: windows of 4 x 4 blocks, the last ones smaller.
TEST_F(QwenVision, WindowOrderOfTheReference) {
  const VisionFrame frames[] = {frame(12, 20)};
  const WindowOrder order = window_order(cx_, frames, 2, 4);
  const std::vector<std::int32_t> begin(order.blocks.begin(), order.blocks.begin() + 21);
  EXPECT_THAT(begin, ElementsAre(0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33, 4, 5, 6, 7, 14));
  EXPECT_THAT(order.segments, ElementsAre(0, 64, 128, 160, 192, 224, 240));
}

// The reference pads sides that are multiples of the window by one whole window and drops it again.
TEST_F(QwenVision, WholeWindowsLeaveNoEmptyOnes) {
  const VisionFrame frames[] = {frame(16, 8)};
  const WindowOrder order = window_order(cx_, frames, 2, 4);
  EXPECT_THAT(order.segments, ElementsAre(0, 64, 128));
  for (std::size_t i = 0; i < order.blocks.size(); ++i)
    EXPECT_EQ(order.blocks[i], static_cast<std::int32_t>(i));
}

TEST_F(QwenVision, WindowOrderIsAPermutationOfEachFrame) {
  for (int h = 1; h <= 13; ++h)
    for (int w = 1; w <= 13; ++w)
      for (const int window : {1, 2, 3, 4, 8}) {
        const VisionFrame frames[] = {frame(2 * h, 2 * w), frame(2 * w, 2 * h)};
        const WindowOrder order = window_order(cx_, frames, 2, window);
        const auto n = static_cast<std::size_t>(h * w);
        for (const std::size_t first : {std::size_t{0}, n}) {
          const auto part = order.blocks.subspan(first, n);
          const std::set<std::int32_t> seen(part.begin(), part.end());
          ASSERT_EQ(seen.size(), n);
          ASSERT_EQ(*seen.begin(), static_cast<std::int32_t>(first));
          ASSERT_EQ(*seen.rbegin(), static_cast<std::int32_t>(first + n) - 1);
        }
        ASSERT_EQ(order.segments.back(), static_cast<std::int32_t>(8 * n));
        for (std::size_t i = 1; i < order.segments.size(); ++i) {
          const std::int32_t length = order.segments[i] - order.segments[i - 1];
          ASSERT_GT(length, 0);
          ASSERT_LE(length, 4 * window * window);
        }
        arena_.reset();
      }
}

TEST_F(QwenVision, AnglesTurnByRowAndColumnInBlockOrder) {
  const std::vector<float> inv = axial_inverse_frequencies(8, 10000.0);
  ASSERT_EQ(inv.size(), 2U);
  EXPECT_FLOAT_EQ(inv[0], 1.0F);
  EXPECT_FLOAT_EQ(inv[1], 0.01F);
  const VisionFrame frames[] = {frame(2, 4), frame(2, 2)};
  const RopeAngles angles = axial_rope_angles(cx_, frames, 2, inv);
  const int expected[][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 2}, {0, 3},
                             {1, 2}, {1, 3}, {0, 0}, {0, 1}, {1, 0}, {1, 1}};
  ASSERT_EQ(angles.cos.dim(0), 12);
  ASSERT_EQ(angles.cos.dim(1), 4);
  for (std::int64_t i = 0; i < 12; ++i)
    for (std::int64_t j = 0; j < 4; ++j) {
      const float angle = static_cast<float>(expected[i][j / 2]) * inv[static_cast<std::size_t>(j % 2)];
      EXPECT_FLOAT_EQ(angles.cos.row(i).cf32()[j], std::cos(angle)) << i << " " << j;
      EXPECT_FLOAT_EQ(angles.sin.row(i).cf32()[j], std::sin(angle)) << i << " " << j;
    }
}

// A table of 3 x 3 whose rows hold their own place: what comes out is where a patch lies on it.
TEST_F(QwenVision, PositionsReachFromCornerToCorner) {
  Tensor table(DType::kF32, {9, 2});
  for (int i = 0; i < 9; ++i) {
    table.f32()[2 * i] = static_cast<float>(i / 3);
    table.f32()[2 * i + 1] = static_cast<float>(10 * (i % 3));
  }
  const VisionFrame frames[] = {frame(2, 4), frame(6, 2)};
  const TensorView rows = interpolated_positions(cx_, frames, 2, table);
  ASSERT_EQ(rows.shape(), (Shape{20, 2}));
  const int places[][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}};  // in block order
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_FLOAT_EQ(rows.row(i).cf32()[0], static_cast<float>(2 * places[i][0])) << i;
    EXPECT_FLOAT_EQ(rows.row(i).cf32()[1], 20.0F * static_cast<float>(places[i][1]) / 3.0F) << i;
  }
  for (std::int64_t i = 0; i < 12; ++i) {
    EXPECT_FLOAT_EQ(rows.row(8 + i).cf32()[0], 2.0F * static_cast<float>(i / 2) / 5.0F) << i;
    EXPECT_FLOAT_EQ(rows.row(8 + i).cf32()[1], 20.0F * static_cast<float>(i % 2)) << i;
  }
  // A side of one patch lies at the table's first.
  const VisionFrame one[] = {frame(1, 2)};
  const TensorView line = interpolated_positions(cx_, one, 1, table);
  EXPECT_FLOAT_EQ(line.row(1).cf32()[0], 0.0F);
  EXPECT_FLOAT_EQ(line.row(1).cf32()[1], 20.0F);
}

TEST_F(QwenVision, SegmentsAreFrames) {
  const VisionFrame frames[] = {frame(2, 4), frame(2, 2), frame(4, 4)};
  EXPECT_THAT(frame_segments(cx_, frames), ElementsAre(0, 8, 12, 28));
}

TEST_F(QwenVision, GroupsHoldAtLeastOneFrame) {
  const VisionFrame frames[] = {frame(2, 4), frame(2, 2), frame(4, 4)};
  EXPECT_EQ(leading_frames(frames, 7), 1U);
  EXPECT_EQ(leading_frames(frames, 8), 1U);
  EXPECT_EQ(leading_frames(frames, 12), 2U);
  EXPECT_EQ(leading_frames(frames, 27), 2U);
  EXPECT_EQ(leading_frames(frames, 28), 3U);
  EXPECT_EQ(leading_frames({}, 1), 0U);
}

TEST_F(QwenVision, ConfigurationIsChecked) {
  const auto parse = [](const char* text) {
    const Json json = Json::parse(text);
    return QwenVisionConfig::parse(JsonView(json, "vision_config"), "embed_dim", {.width = 1280});
  };
  EXPECT_EQ(parse("{}").head_dim(), 80);
  EXPECT_EQ(parse(R"({"embed_dim": 72, "num_heads": 3})").head_dim(), 24);
  for (const char* bad :
       {R"({"embed_dim": 70})", R"({"embed_dim": 0})", R"({"num_heads": 0})", R"({"num_heads": 7})",
        R"({"patch_size": 0})", R"({"patch_size": "14"})", R"({"spatial_merge_size": -2})",
        R"({"temporal_patch_size": 1000000})", R"({"in_channels": 4})", R"({"depth": 1e9})",
        R"({"rope_parameters": {"rope_type": "yarn"}})", R"({"rope_parameters": {"rope_theta": 0}})"})
    EXPECT_THROW(parse(bad), Error) << bad;
}

}  // namespace
}  // namespace triptych
