#include "engine/video_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "media/image_decode.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path kVideos = test::source_dir() / "tests/data/videos";

// A picture of one grey as PGM.
std::string grey(int value, int width_px = 4, int height_px = 3) {
  return "P5\n" + std::to_string(width_px) + " " + std::to_string(height_px) + "\n255\n" +
         std::string(static_cast<std::size_t>(width_px * height_px), static_cast<char>(value));
}

class VideoFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("video_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  static std::vector<int> greys(const MediaInput& input) {
    std::vector<int> out;
    for (const Image& frame : input.frames) out.push_back(frame.rgb[0]);
    return out;
  }
  static std::string error_of(const std::function<void()>& step) {
    try {
      step();
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal);
      return error.what();
    }
    return "no error";
  }
  std::filesystem::path folder_;
};

TEST(NaturalOrder, NumbersCountAsNumbers) {
  std::vector<std::string> names = {"f10.png", "f9.png", "f009.png", "f1.png",
                                    "e99",     "f1",     "f1a2",     "f1a10",
                                    "10",      "9",      "",         "f99999999999999999999999.png",
                                    "F2.png",  "f2.png"};
  std::sort(names.begin(), names.end(), natural_less);
  EXPECT_THAT(names, ElementsAre("", "9", "10", "F2.png", "e99", "f1", "f1.png", "f1a2", "f1a10", "f2.png",
                                 "f009.png", "f9.png", "f10.png", "f99999999999999999999999.png"));
  for (const std::string& a : names) {
    EXPECT_FALSE(natural_less(a, a));
    for (const std::string& b : names)
      EXPECT_FALSE(natural_less(a, b) && natural_less(b, a)) << a << " " << b;
  }
}

TEST_F(VideoFileTest, AFolderIsReadInNaturalOrder) {
  for (int i = 0; i < 12; ++i) put("frame" + std::to_string(i) + ".pgm", grey(10 * i));
  put(".hidden", "no picture");
  std::filesystem::create_directory(folder_ / "deeper");
  const VideoFile video = VideoFile::open(folder_);
  EXPECT_EQ(video.n_frames(), 12);
  EXPECT_EQ(video.width_px(), 4);
  EXPECT_EQ(video.height_px(), 3);
  // Without a rate of its own it counts as sampled already.
  const MediaInput all = video.read({});
  EXPECT_TRUE(all.is_video);
  EXPECT_THAT(greys(all), ElementsAre(0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110));
  EXPECT_EQ(all.frames_per_s, 2.0);
  EXPECT_EQ(video.read({}, {.frames_per_s = 5.0, .max_frames = {}, .source_frames_per_s = {}}).frames_per_s,
            5.0);
  const MediaInput few = video.read({}, {.frames_per_s = {}, .max_frames = 4, .source_frames_per_s = {}});
  EXPECT_THAT(greys(few), ElementsAre(0, 30, 60, 90));
  EXPECT_DOUBLE_EQ(few.frames_per_s, 2.0 * 4 / 12);
  const MediaInput sampled =
      video.read({}, {.frames_per_s = {}, .max_frames = {}, .source_frames_per_s = 4.0});
  EXPECT_THAT(greys(sampled), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_DOUBLE_EQ(sampled.frames_per_s, 2.0);
}

TEST_F(VideoFileTest, FoldersThatAreNoVideo) {
  EXPECT_THAT(error_of([&] { VideoFile::open(folder_); }), HasSubstr("no file in it"));
  put("1.pgm", grey(1));
  put("2.pgm", grey(1, 5, 3));
  EXPECT_THAT(error_of([&] { VideoFile::open(folder_); }), HasSubstr("2.pgm"));
  put("2.pgm", "text");
  EXPECT_THAT(error_of([&] { VideoFile::open(folder_); }), HasSubstr("2.pgm"));
  EXPECT_THAT(error_of([&] { VideoFile::open(folder_ / "absent"); }), HasSubstr("absent"));
  put("2.pgm", grey(1));
  VideoLimits limits;
  limits.max_folder_frames = 1;
  EXPECT_THAT(error_of([&] { VideoFile::open(folder_, limits); }), HasSubstr("more than 1 files"));
  limits = {};
  limits.max_pixels = 4 * 3 * 2 - 1;
  EXPECT_THAT(error_of([&] { VideoFile::open(folder_, limits).read({}); }), HasSubstr("24 pixels"));
  limits = {};
  limits.picture.max_file_bytes = 5;
  EXPECT_THAT(error_of([&] { VideoFile::open(folder_, limits); }), HasSubstr("1.pgm"));
}

TEST_F(VideoFileTest, AnAnimationIsSampledByItsDelays) {
  // 500, 100 (stated 0), 100 (stated 10), 20, 1000 ms: 1.72 s.
  const VideoFile video = VideoFile::open(kVideos / "delays.gif");
  EXPECT_EQ(video.n_frames(), 5);
  const SampledFrames chosen = video.choose({}, {});
  EXPECT_THAT(chosen.indices, ElementsAre(0, 0, 4, 4));  // shown at 0, 0.43, 0.86 and 1.29 s
  EXPECT_NEAR(chosen.frames_per_s, 4 / 1.72, 1e-12);
  const MediaInput read = video.read({});
  ASSERT_EQ(read.frames.size(), 4U);
  const auto all = decode_animation(MappedFile::open(kVideos / "delays.gif")->bytes(), {}, "");
  EXPECT_EQ(read.frames[1], all[0].image);
  EXPECT_EQ(read.frames[2], all[4].image);
  EXPECT_EQ(read.name, "delays.gif");
  const SampledFrames by_rate =
      video.choose({}, {.frames_per_s = 10.0, .max_frames = {}, .source_frames_per_s = 10.0});
  EXPECT_THAT(by_rate.indices, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(VideoFile::open(kVideos / "blend.webp").read({}).frames.size(), 4U);
}

TEST_F(VideoFileTest, APictureIsOneFrame) {
  put("one.pgm", grey(7));
  const MediaInput video = VideoFile::open(folder_ / "one.pgm").read({});
  EXPECT_TRUE(video.is_video);
  EXPECT_THAT(greys(video), ElementsAre(7));
  EXPECT_EQ(video.frames_per_s, 2.0);
  EXPECT_THAT(error_of([&] {
                VideoFile::open(folder_ / "one.pgm")
                    .read({}, {.frames_per_s = 0.0, .max_frames = {}, .source_frames_per_s = {}});
              }),
              HasSubstr("frames a second"));
}

}  // namespace
}  // namespace triptych
