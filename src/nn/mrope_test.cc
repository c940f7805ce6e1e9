#include "nn/mrope.h"

#include <gmock/gmock.h>

#include <limits>

#include "base/error.h"

namespace triptych {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<std::int32_t> axis(const MropePositions& p, std::size_t a) {
  const std::size_t n = p.positions.size() / 3;
  const auto begin = p.positions.begin() + static_cast<std::ptrdiff_t>(a * n);
  return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

TEST(Mrope, TextAloneCountsOnAllAxes) {
  const MropePositions p = mrope_positions(4, {});
  for (std::size_t a = 0; a < 3; ++a) EXPECT_THAT(axis(p, a), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(p.next_position, 4);
}

TEST(Mrope, EmptyPromptStartsAtZero) { EXPECT_EQ(mrope_positions(0, {}).next_position, 0); }

// T T VS I I I I VE T
TEST(Mrope, OnePicture) {
  const MropeMedia media[] = {{.first_row = 3, .grid_h = 2, .grid_w = 2}};
  const MropePositions p = mrope_positions(9, media);
  EXPECT_THAT(axis(p, 0), ElementsAre(0, 1, 2, 3, 3, 3, 3, 5, 6));
  EXPECT_THAT(axis(p, 1), ElementsAre(0, 1, 2, 3, 3, 4, 4, 5, 6));
  EXPECT_THAT(axis(p, 2), ElementsAre(0, 1, 2, 3, 4, 3, 4, 5, 6));
  EXPECT_EQ(p.next_position, 7);
}

// T VS I I I I VE VS I I I I VE T
TEST(Mrope, TwoPictures) {
  const MropeMedia media[] = {{.first_row = 2, .grid_h = 2, .grid_w = 2},
                              {.first_row = 8, .grid_h = 2, .grid_w = 2}};
  const MropePositions p = mrope_positions(14, media);
  EXPECT_THAT(axis(p, 0), ElementsAre(0, 1, 2, 2, 2, 2, 4, 5, 6, 6, 6, 6, 8, 9));
  EXPECT_THAT(axis(p, 1), ElementsAre(0, 1, 2, 2, 3, 3, 4, 5, 6, 6, 7, 7, 8, 9));
  EXPECT_THAT(axis(p, 2), ElementsAre(0, 1, 2, 3, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9));
  EXPECT_EQ(p.next_position, 10);
}

// Three texts, a start token, a picture of 2 x 3 tokens, an end token, two texts.
TEST(Mrope, WidePicture) {
  const MropeMedia media[] = {{.first_row = 4, .grid_h = 2, .grid_w = 3}};
  const MropePositions p = mrope_positions(13, media);
  EXPECT_THAT(axis(p, 0), ElementsAre(0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 7, 8, 9));
  EXPECT_THAT(axis(p, 1), ElementsAre(0, 1, 2, 3, 4, 4, 4, 5, 5, 5, 7, 8, 9));
  EXPECT_THAT(axis(p, 2), ElementsAre(0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(p.next_position - 13, -3);
}

TEST(Mrope, PictureFirstAndLast) {
  const MropeMedia first[] = {{.first_row = 0, .grid_h = 1, .grid_w = 3}};
  MropePositions p = mrope_positions(4, first);
  EXPECT_THAT(axis(p, 0), ElementsAre(0, 0, 0, 3));
  EXPECT_THAT(axis(p, 1), ElementsAre(0, 0, 0, 3));
  EXPECT_THAT(axis(p, 2), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(p.next_position, 4);

  const MropeMedia last[] = {{.first_row = 1, .grid_h = 3, .grid_w = 1}};
  p = mrope_positions(4, last);
  EXPECT_THAT(axis(p, 0), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(axis(p, 1), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(axis(p, 2), ElementsAre(0, 1, 1, 1));
  EXPECT_EQ(p.next_position, 4);
}

// Three grid steps of one second at two positions a second: in time 0, 2, 4. The text goes on after the
// larger side of the grid, so that its position can be one the video already has; the next one is above all
// of them.
TEST(Mrope, VideoInAbsoluteTime) {
  const MropeMedia media[] = {{.first_row = 1, .grid_t = 3, .grid_h = 1, .grid_w = 2, .temporal_step = 2.0F}};
  MropePositions p = mrope_positions(8, media);
  EXPECT_THAT(axis(p, 0), ElementsAre(0, 1, 1, 3, 3, 5, 5, 3));
  EXPECT_THAT(axis(p, 1), ElementsAre(0, 1, 1, 1, 1, 1, 1, 3));
  EXPECT_THAT(axis(p, 2), ElementsAre(0, 1, 2, 1, 2, 1, 2, 3));
  EXPECT_EQ(p.next_position, 6);
}

TEST(Mrope, FractionsOfAStepAreCut) {
  const MropeMedia media[] = {{.first_row = 0, .grid_t = 5, .grid_h = 1, .grid_w = 1, .temporal_step = 0.7F}};
  EXPECT_THAT(axis(mrope_positions(5, media), 0), ElementsAre(0, 0, 1, 2, 2));
}

TEST(Mrope, PositionsBeyondTheRangeAreAnError) {
  for (const float step :
       {1e9F, 1e30F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const MropeMedia media[] = {
        {.first_row = 0, .grid_t = 4, .grid_h = 1, .grid_w = 1, .temporal_step = step}};
    EXPECT_THROW(mrope_positions(4, media), Error) << step;
  }
}

TEST(Mrope, MediaMustLieInThePrompt) {
  const MropeMedia media[] = {{.first_row = 2, .grid_h = 2, .grid_w = 2}};
  EXPECT_THROW(mrope_positions(5, media), Error);
}

}  // namespace
}  // namespace triptych
