// Frames of animations chosen by index, their times, and what hostile ones cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "media/image_decode.h"
#include "media/testing/test_images.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using ::testing::ElementsAre;
using testing::expect_same;
using testing::read_bytes;
using testing::read_images;
using Bytes = std::vector<std::byte>;

const std::filesystem::path kVideos = test::source_dir() / "tests/data/videos";
constexpr const char* kFiles[] = {"delays.gif", "mixed.gif", "late_start.gif", "blend.webp"};

// Offsets, local palettes, interlacing, every disposal, blending on and off; how the
// expected frames were made stands in tests/data/videos/make.py.
TEST(AnimationFrames, MatchTheExpectedOnes) {
  std::map<std::string, std::size_t> n_compared;
  for (const auto& [name, want] : read_images(kVideos / "frames.safetensors")) {
    const std::size_t duration_at = name.rfind('.');  // frame.<file>.<ext>.<index>.<duration>
    const std::size_t index_at = name.rfind('.', duration_at - 1);
    const std::string file = name.substr(6, index_at - 6);
    const int index[] = {std::stoi(name.substr(index_at + 1))};
    const Bytes bytes = read_bytes(kVideos / file);
    const std::vector<Image> alone = decode_frames(bytes, {}, file, index);
    ASSERT_EQ(alone.size(), 1U);
    expect_same(alone[0], want, 0, name);
    const std::vector<Frame> all = decode_animation(bytes, {}, file);
    const auto at = static_cast<std::size_t>(index[0]);
    ASSERT_LT(at, all.size());
    expect_same(all[at].image, want, 0, name + " of all");
    const AnimationInfo info = probe_animation(bytes, {}, file);
    ASSERT_EQ(info.durations_ms.size(), all.size()) << file;
    EXPECT_EQ(info.durations_ms[at], std::stoi(name.substr(duration_at + 1))) << name;
    EXPECT_EQ(info.durations_ms[at], all[at].duration_ms) << name;
    EXPECT_EQ(info.width_px, want.width_px);
    EXPECT_EQ(info.height_px, want.height_px);
    ++n_compared[file];
  }
  EXPECT_EQ(n_compared.size(), 15U);
  for (const auto& [file, n] : n_compared)
    EXPECT_EQ(n, probe_animation(read_bytes(kVideos / file), {}, file).durations_ms.size()) << file;
}

TEST(AnimationFrames, RepeatsAndGapsAreAllowed) {
  for (const char* file : kFiles) {
    const Bytes bytes = read_bytes(kVideos / file);
    const std::vector<Frame> all = decode_animation(bytes, {}, file);
    const int indices[] = {0, 0, 2, 2, 2};
    const std::vector<Image> some = decode_frames(bytes, {}, file, indices);
    ASSERT_EQ(some.size(), 5U);
    for (std::size_t i = 0; i < some.size(); ++i)
      EXPECT_EQ(some[i], all[static_cast<std::size_t>(indices[i])].image) << file << " " << i;
    const int beyond[] = {1, 99};
    EXPECT_THROW(decode_frames(bytes, {}, file, beyond), Error) << file;
  }
}

TEST(AnimationFrames, AStillPictureIsOneFrame) {
  const std::filesystem::path files = testing::image_data() / "files";
  for (const char* file : {"rgb.png", "still.gif", "lossless.webp"}) {
    const Bytes bytes = read_bytes(files / file);
    EXPECT_THAT(probe_animation(bytes, {}, file).durations_ms, ElementsAre(0)) << file;
    const int twice[] = {0, 0};
    const std::vector<Image> frames = decode_frames(bytes, {}, file, twice);
    EXPECT_EQ(frames[0], decode_image(bytes, {}, file)) << file;
    EXPECT_EQ(frames[1], frames[0]) << file;
    const int second[] = {1};
    EXPECT_THROW(decode_frames(bytes, {}, file, second), Error) << file;
  }
}

TEST(AnimationFrames, LimitsCountWhatIsKeptAndWhatIsDrawn) {
  constexpr std::uint64_t kPixels = 20 * 14;
  for (const char* file : {"mixed.gif", "blend.webp"}) {
    const Bytes bytes = read_bytes(kVideos / file);
    const int last[] = {3};
    EXPECT_NO_THROW(decode_frames(bytes, {.max_animation_pixels = kPixels}, file, last)) << file;
    EXPECT_THROW(decode_frames(bytes, {.max_animation_pixels = kPixels - 1}, file, last), Error) << file;
    const int twice[] = {3, 3};
    EXPECT_THROW(decode_frames(bytes, {.max_animation_pixels = 2 * kPixels - 1}, file, twice), Error) << file;
    EXPECT_NO_THROW(decode_frames(bytes, {.max_drawn_pixels = 4 * kPixels}, file, last)) << file;
    EXPECT_THROW(decode_frames(bytes, {.max_drawn_pixels = 4 * kPixels - 1}, file, last), Error) << file;
    EXPECT_THROW(decode_frames(bytes, {.max_frames = 3}, file, last), Error) << file;
    EXPECT_THROW(probe_animation(bytes, {.max_frames = 3}, file), Error) << file;
  }
}

TEST(AnimationFrames, CutFilesAreErrorsEverywhere) {
  for (const char* file : kFiles) {
    const Bytes whole = read_bytes(kVideos / file);
    for (std::size_t n = 0; n + 1 < whole.size(); n += 7) {
      const std::span<const std::byte> cut(whole.data(), n);
      EXPECT_THROW(probe_animation(cut, {}, file), Error) << file << " " << n;
      EXPECT_THROW(decode_animation(cut, {}, file), Error) << file << " " << n;
    }
  }
}

}  // namespace
}  // namespace triptych
