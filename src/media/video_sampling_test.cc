#include "media/video_sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using testing::ElementsAre;

// tests/data/videos/sampling.json: what the reference's own function gives.
TEST(VideoSampling, TakesTheFramesOfTheReference) {
  std::ifstream in(test::source_path("tests/data/videos/sampling.json"));
  std::stringstream text;
  text << in.rdbuf();
  const Json cases = parse_json(text.str(), "sampling.json");
  ASSERT_EQ(cases.size(), 126U);
  int n_beyond = 0;
  for (const auto& c : cases) {
    const int total = c["total"].get<int>();
    if (c["last"].get<int>() >= total) {  // the reference asks for a frame that is not there and fails
      ++n_beyond;
      continue;
    }
    VideoSampling sampling;
    sampling.frames_per_s = c["fps"].get<double>();
    sampling.min_frames = c["min"].get<int>();
    sampling.max_frames = c["max"].get<int>();
    const SampledFrames got = sample_frames(total, c["source"].get<double>(), sampling);
    const auto first = c["first"].get<std::vector<int>>();
    ASSERT_EQ(got.indices.size(), c["n"].get<std::size_t>()) << c.dump();
    EXPECT_TRUE(std::equal(first.begin(), first.end(), got.indices.begin())) << c.dump();
    EXPECT_EQ(std::accumulate(got.indices.begin(), got.indices.end(), 0), c["sum"].get<int>()) << c.dump();
    EXPECT_EQ(got.indices.back(), c["last"].get<int>()) << c.dump();
    EXPECT_DOUBLE_EQ(got.frames_per_s, c["rate"].get<double>()) << c.dump();
  }
  EXPECT_LE(n_beyond, 2);
}

// The same of Qwen3-VL's; in the same file.
TEST(VideoSampling, ToTheEndTakesTheFramesOfTheReference) {
  std::ifstream in(test::source_path("tests/data/videos/sampling_to_the_end.json"));
  std::stringstream text;
  text << in.rdbuf();
  const Json cases = parse_json(text.str(), "sampling_to_the_end.json");
  ASSERT_EQ(cases.size(), 84U);
  for (const auto& c : cases) {
    VideoSampling sampling;
    sampling.frames_per_s = c["fps"].get<double>();
    sampling.min_frames = c["min"].get<int>();
    sampling.max_frames = c["max"].get<int>();
    sampling.to_the_end = true;
    const SampledFrames got = sample_frames(c["total"].get<int>(), c["source"].get<double>(), sampling);
    const auto first = c["first"].get<std::vector<int>>();
    ASSERT_EQ(got.indices.size(), c["n"].get<std::size_t>()) << c.dump();
    EXPECT_TRUE(std::equal(first.begin(), first.end(), got.indices.begin())) << c.dump();
    EXPECT_EQ(std::accumulate(got.indices.begin(), got.indices.end(), 0), c["sum"].get<int>()) << c.dump();
    EXPECT_EQ(got.indices.back(), c["total"].get<int>() - 1) << c.dump();
    for (std::size_t i = 0; i < got.indices.size(); ++i)
      EXPECT_EQ(got.times_s[i], got.indices[i] / c["source"].get<double>());
  }
}

TEST(VideoSampling, ToTheEndByTheClock) {
  VideoSampling sampling;
  sampling.frames_per_s = 1.0;
  sampling.to_the_end = true;
  // Begin at 0, 0.5, 3.1, 3.2, 3.3 and 3.4 s; wanted are four frames 3.4 / 3 s apart.
  const SampledFrames got = sample_frames(std::vector<int>{500, 2600, 100, 100, 100, 600}, sampling);
  EXPECT_THAT(got.indices, ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(got.times_s, ElementsAre(0, 0.5, 3.1, 3.4));
  EXPECT_THAT(sample_frames(std::vector<int>{40, 40, 40}, sampling).indices, ElementsAre(0, 1, 2));
  EXPECT_THAT(sample_frames(std::vector<int>{40}, sampling).indices, ElementsAre(0));
}

TEST(VideoSampling, EqualDurationsAreAConstantRate) {
  for (const int n : {1, 2, 3, 7, 48, 301})
    for (const double rate : {0.5, -0.5, 2.0, -2.0, 9.0, -9.0}) {
      VideoSampling sampling;
      sampling.frames_per_s = std::abs(rate);
      sampling.to_the_end = rate < 0;
      const std::vector<int> durations(static_cast<std::size_t>(n), 40);
      const SampledFrames by_clock = sample_frames(durations, sampling);
      const SampledFrames by_rate = sample_frames(n, 25.0, sampling);
      EXPECT_EQ(by_clock.indices, by_rate.indices) << n << " at " << rate;
      EXPECT_NEAR(by_clock.frames_per_s, by_rate.frames_per_s, 1e-9);
      EXPECT_NEAR(by_clock.times_s.back(), by_rate.times_s.back(), 1e-9);
    }
}

TEST(VideoSampling, UnequalDurationsGoByTheClock) {
  VideoSampling sampling;
  sampling.frames_per_s = 1.0;
  // Four seconds; the second frame fills most of them. Shown at 0, 1, 2, 3 s:
  const SampledFrames got = sample_frames(std::vector<int>{500, 2600, 100, 100, 100, 600}, sampling);
  EXPECT_THAT(got.indices, ElementsAre(0, 1, 1, 1));
  EXPECT_DOUBLE_EQ(got.frames_per_s, 1.0);
  // A change exactly at a sampled time shows the new frame.
  EXPECT_THAT(sample_frames(std::vector<int>{1000, 1000, 1000, 1000}, sampling).indices,
              ElementsAre(0, 1, 2, 3));
}

TEST(VideoSampling, ShortVideosAreTakenWhole) {
  EXPECT_THAT(sample_frames(1, 30.0, {}).indices, ElementsAre(0));
  EXPECT_THAT(sample_frames(3, 30.0, {}).indices, ElementsAre(0, 1));  // whole temporal patches
  VideoSampling one;
  one.min_frames = one.max_frames = 1;
  EXPECT_THAT(sample_frames(100, 30.0, one).indices, ElementsAre(0));
  VideoSampling three;
  three.frame_multiple = 3;
  EXPECT_THAT(sample_frames(2, 30.0, three).indices, ElementsAre(0, 1));
  EXPECT_THAT(sample_frames(9, 100.0, three).indices, ElementsAre(0, 3, 6));
}

TEST(VideoSampling, RefusesWhatIsNoRate) {
  for (const double bad :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(sample_frames(8, bad, {}), Error);
    VideoSampling sampling;
    sampling.frames_per_s = bad;
    EXPECT_THROW(sample_frames(8, 2.0, sampling), Error);
    EXPECT_THROW(sample_frames(std::vector<int>{10, 10}, sampling), Error);
  }
  VideoSampling none;
  none.max_frames = 0;
  EXPECT_THROW(sample_frames(8, 2.0, none), Error);
  VideoSampling huge;  // wishes beyond any number of frames
  huge.frames_per_s = 1e300;
  EXPECT_EQ(sample_frames(8, 1e-300, huge).indices.size(), 8U);
}

TEST(VideoSampling, ShortDelaysPlayAsInBrowsers) {
  EXPECT_THAT(played_durations_ms(std::vector<int>{0, 10, 20, 100, 5000}),
              ElementsAre(100, 100, 20, 100, 5000));
}

}  // namespace
}  // namespace triptych
