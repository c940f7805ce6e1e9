// Pictures that cost more than they hold, and forms that decoders commonly get wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "base/asan.h"
#include "base/error.h"
#include "media/image_decode.h"
#include "media/testing/test_images.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;
using testing::image_data;
using testing::read_bytes;
using Bytes = std::vector<std::byte>;

Bytes fault(const std::string& name) { return read_bytes(image_data() / "faults" / name); }
Bytes extra(const std::string& name) { return read_bytes(image_data() / "extra" / name); }

Error error_of(const Bytes& bytes) {
  try {
    decode_image(bytes, {}, "x.img");
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorCode::kInternal, ""};
}

Rgb8 pixel(const Image& image, int x, int y) {
  const std::uint8_t* at =
      image.rgb.data() + static_cast<std::size_t>(y) * image.row_bytes() + 3 * static_cast<std::size_t>(x);
  return {at[0], at[1], at[2]};
}

void append(Bytes& to, std::string_view text) {
  for (const char c : text) to.push_back(static_cast<std::byte>(c));
}
void append(Bytes& to, std::uint64_t value, int n_bytes) {  // little-endian
  for (int i = 0; i < n_bytes; ++i) to.push_back(static_cast<std::byte>(i < 8 ? value >> (8 * i) & 0xFF : 0));
}

// A frame whose first row can be decoded (colour 0); what follows is no code but takes its place in the file.
void append_frame(Bytes& gif, int side_px, bool is_interlaced, std::size_t n_bytes) {
  append(gif, std::string_view("\x2C\0\0\0\0", 5));
  append(gif, static_cast<std::uint64_t>(side_px), 2);
  append(gif, static_cast<std::uint64_t>(side_px), 2);
  gif.push_back(is_interlaced ? std::byte{0x40} : std::byte{0});
  gif.push_back(std::byte{8});  // bits of a pixel: codes of 9 bits, 256 clears
  std::vector<std::uint8_t> data;
  unsigned held = 0, n_bits = 0;
  const auto put = [&](unsigned code) {
    held |= code << n_bits;
    for (n_bits += 9; n_bits >= 8; n_bits -= 8, held >>= 8) data.push_back(static_cast<std::uint8_t>(held));
  };
  for (int n = 0; n < side_px; n += 200) {  // before codes grow to 10 bits
    put(256);
    for (int i = 0; i < 200; ++i) put(0);
  }
  data.push_back(static_cast<std::uint8_t>(held));
  data.resize(std::max(data.size(), n_bytes));
  for (std::size_t at = 0; at < data.size(); at += 255) {
    const std::size_t n = std::min<std::size_t>(255, data.size() - at);
    gif.push_back(static_cast<std::byte>(n));
    for (std::size_t i = 0; i < n; ++i) gif.push_back(static_cast<std::byte>(data[at + i]));
  }
  gif.push_back(std::byte{0});
}

Bytes gif_of(int canvas_px, int frame_px, int n_frames, bool is_interlaced, std::size_t frame_bytes) {
  Bytes gif;
  append(gif, "GIF89a");
  append(gif, static_cast<std::uint64_t>(canvas_px), 2);
  append(gif, static_cast<std::uint64_t>(canvas_px), 2);
  append(gif, std::string_view("\x80\0\0\x0A\x14\x1E\xFF\xFF\xFF", 9));  // two colours
  for (int i = 0; i < n_frames; ++i) append_frame(gif, i == 0 ? 1 : frame_px, is_interlaced, frame_bytes);
  append(gif, ";");
  return gif;
}

Bytes bmp_of_runs(int side_px) {
  Bytes bmp;
  append(bmp, "BM");
  append(bmp, 0, 8);
  append(bmp, 14 + 40 + 8, 4);
  append(bmp, 40, 4);
  append(bmp, static_cast<std::uint64_t>(side_px), 4);
  append(bmp, static_cast<std::uint64_t>(side_px), 4);
  append(bmp, 1, 2);
  append(bmp, 8, 2);  // bits
  append(bmp, 1, 4);  // RLE8
  append(bmp, 0, 12);
  append(bmp, 2, 4);  // colours
  append(bmp, 0, 4);
  append(bmp, 0x00FFFFFF, 8);
  append(bmp, 0x0100, 2);  // end
  return bmp;
}

Bytes webp_animation(int side_px) {
  Bytes webp;
  append(webp, "RIFF");
  append(webp, 4 + 8 + 10 + 8 + 6, 4);
  append(webp, "WEBPVP8X");
  append(webp, 10, 4);
  append(webp, 2, 4);  // animated
  append(webp, static_cast<std::uint64_t>(side_px - 1), 3);
  append(webp, static_cast<std::uint64_t>(side_px - 1), 3);
  append(webp, "ANIM");
  append(webp, 6, 4);
  append(webp, 0, 6);
  return webp;
}

// Most that this process held while `work` ran, beyond what it held before; 0 where the system does not say.
template <typename Work>
std::size_t peak_growth_bytes(const Work& work) {
  const auto field = [](const std::string& name) {
    std::ifstream in("/proc/self/status");
    for (std::string word; in >> word;)
      if (word == name) {
        std::size_t kib = 0;
        in >> kib;
        return kib * 1024;
      }
    return std::size_t{0};
  };
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak starts anew
  const std::size_t before = field("VmRSS:");
  work();
  const std::size_t peak = field("VmHWM:");
  return peak > before ? peak - before : 0;
}

TEST(ImageFaults, ShortFilesTakeLittleMemory) {
  const std::pair<const char*, Bytes> files[] = {{"PNG", fault("bomb_8000x8000.png")},
                                                 {"TIFF tile", fault("tiff_tile.tiff")},
                                                 {"GIF screen", gif_of(8000, 1, 1, false, 0)},
                                                 {"BMP runs", bmp_of_runs(8000)},
                                                 {"WebP canvas", webp_animation(8000)}};
  for (const auto& file : files) {
    const Bytes& bytes = file.second;
    SCOPED_TRACE(file.first);
    ASSERT_LT(bytes.size(), 512U);
    Error error(ErrorCode::kInternal, "");
    [[maybe_unused]] const std::size_t growth = peak_growth_bytes([&] { error = error_of(bytes); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile) << error.what();
#if !defined(TRIPTYCH_ASAN) && !defined(__SANITIZE_THREAD__)  // these keep shadows of memory
    EXPECT_LT(growth, std::size_t{8} << 20) << error.what();
#endif
  }
}

// The same headers with sizes that such files can hold are read as far as they are whole.
TEST(ImageFaults, SmallPicturesAreNotTakenForBombs) {
  EXPECT_EQ(decode_image(gif_of(300, 1, 1, false, 0), {}, "x.gif").width_px, 300);
  const Image runs = decode_image(bmp_of_runs(100), {}, "x.bmp");
  EXPECT_EQ(pixel(runs, 99, 99), kWhite);
  EXPECT_THAT(error_of(webp_animation(100)).what(), HasSubstr("WebP"));
}

TEST(ImageFaults, RowsThatTheCanvasHidesAreNotDecoded) {
  const Bytes gif = gif_of(1, 4000, 5, false, 4000);
  const std::array<int, 2> wanted{0, 4};
  const std::vector<Image> frames = decode_frames(gif, {}, "x.gif", wanted);
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(pixel(frames[1], 0, 0), (Rgb8{10, 20, 30}));
  EXPECT_EQ(probe_animation(gif, {}, "x.gif").durations_ms.size(), 5U);
}

// All rows of an interlaced frame are decoded: they count, though one pixel is shown.
TEST(ImageFaults, PixelsOutsideTheCanvasCount) {
  const Bytes gif = gif_of(1, 8000, 20, true, 16000);
  const std::array<int, 1> last{19};
  try {
    decode_frames(gif, {}, "x.gif", last);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
  }
  const std::array<int, 1> second{1};
  try {
    decode_frames(gif, {.max_drawn_pixels = 64'000'000}, "x.gif", second);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("frames have"));
  }
}

TEST(ImageFaults, CodesOfGifStartWithEightBitsAtMost) {
  const Error error = error_of(fault("gif_issue_2811.gif"));
  EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
  EXPECT_THAT(error.what(), HasSubstr("11 bits"));
}

TEST(ImageFaults, OrientationInTextOfPng) {
  for (const char* name : {"ex_rawprofile6.png", "ex_xmpz6.png"}) {
    EXPECT_EQ(probe_image(fault(name), {}, name).orientation, 6) << name;
    EXPECT_NO_THROW(decode_image(fault(name), {}, name)) << name;
  }
}

TEST(ImageFaults, AlphaOfZeroEverywhereIsNone) {
  const Image image = decode_image(fault("bmp_v5_alpha_all_zero.bmp"), {}, "x.bmp");
  EXPECT_EQ(pixel(image, 0, 0), (Rgb8{200, 50, 120}));
}

TEST(ImageFaults, FourthSampleOfRgbIsAlphaWhenNothingDeclaresIt) {
  Bytes tiff = extra("rgba.tiff");
  const Image declared = decode_image(tiff, {}, "x.tiff");
  const std::array<std::byte, 4> extra_samples{std::byte{0x52}, std::byte{1}, std::byte{3}, std::byte{0}};
  const auto at = std::search(tiff.begin(), tiff.end(), extra_samples.begin(), extra_samples.end());
  ASSERT_NE(at, tiff.end());
  *at = std::byte{0x51};  // a tag that says nothing of samples
  EXPECT_EQ(decode_image(tiff, {}, "x.tiff"), declared);
}

TEST(ImageFaults, FaxWithoutPhotometricIsBlackOnWhite) {
  const Image image = decode_image(fault("tiff_group4_no_photometric.tif"), {}, "x.tif");
  const int want[] = {255, 255, 255, 0, 255, 255};
  for (int x = 0; x < 6; ++x) EXPECT_EQ(int{pixel(image, x, 0).r}, want[x]) << x;
}

// A little-endian TIFF of one strip: tags {tag, type, value} in ascending order, `data` at tiff_data of their
// number.
constexpr std::uint32_t tiff_data(std::size_t n_tags) {
  return static_cast<std::uint32_t>(8 + 2 + n_tags * 12 + 4);
}
Bytes tiff_of(const std::vector<std::array<std::uint32_t, 3>>& tags, std::string_view data) {
  Bytes tiff;
  append(tiff, "II*");
  append(tiff, 0, 1);
  append(tiff, 8, 4);
  append(tiff, tags.size(), 2);
  for (const auto& [tag, type, value] : tags) {
    append(tiff, tag, 2);
    append(tiff, type, 2);
    append(tiff, 1, 4);
    append(tiff, value, 4);
  }
  append(tiff, 0, 4);
  append(tiff, data);
  return tiff;
}

// libtiff takes a strip that ends early: what it does not write must not be what lay in memory.
TEST(ImageFaults, RowsThatAFaxDoesNotHoldAreWhite) {
  const Bytes tiff =
      tiff_of({{256, 3, 512},
               {257, 3, 4096},
               {258, 3, 1},
               {259, 3, 4},
               {262, 3, 0},
               {273, 4, tiff_data(8)},
               {278, 3, 4096},
               {279, 4, 4}},
              std::string_view("\x80\x08\x00\x80", 4));  // a white row, then the end of the block
  { const PoolVector<std::uint8_t> dirt(512 / 8 * 4096, 0xA5); }
  const Image image = decode_image(tiff, {}, "x.tiff");
  EXPECT_EQ(std::count(image.rgb.begin(), image.rgb.end(), 255), std::ptrdiff_t{512} * 4096 * 3);
}

TEST(ImageFaults, TwelveBitsOfTiff) {
  const Bytes tiff = tiff_of({{256, 3, 3},
                              {257, 3, 1},
                              {258, 3, 12},
                              {259, 3, 1},
                              {262, 3, 1},
                              {273, 4, tiff_data(9)},
                              {277, 3, 1},
                              {278, 3, 1},
                              {279, 4, 5}},
                             std::string_view("\x00\x08\x00\xFF\xF0", 5));  // 0, 2048, 4095
  const Image image = decode_image(tiff, {}, "x.tiff");
  EXPECT_EQ(int{pixel(image, 0, 0).r}, 0);
  EXPECT_EQ(int{pixel(image, 1, 0).r}, 128);  // 127.53
  EXPECT_EQ(int{pixel(image, 2, 0).r}, 255);
}

TEST(ImageFaults, OtherFormatsAreNamed) {
  using namespace std::string_literals;
  const std::string tga = "\0\0\2\0\0\0\0\0\0\0\0\0\x04\0\x04\0\x18\0"s + std::string(48, 'x');
  for (const auto& [start, name] :
       {std::pair{"\0\0\1\0\1\0\x10\x10\0\0\1\0\x20\0"s, "ICO"}, {"DDS \x7c\0\0\0"s, "DDS"}, {tga, "TGA"}}) {
    Bytes bytes;
    append(bytes, start);
    EXPECT_EQ(error_of(bytes).code(), ErrorCode::kUnsupported) << name;
    EXPECT_THAT(error_of(bytes).what(), HasSubstr(name));
  }
}

}  // namespace
}  // namespace triptych
