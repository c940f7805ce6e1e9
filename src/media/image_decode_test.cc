#include "media/image_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "media/testing/test_images.h"

namespace triptych {
namespace {

using testing::expect_same;
using ::testing::HasSubstr;
using testing::image_data;
using testing::read_bytes;
using testing::read_images;
using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

Bytes first(const Bytes& bytes, std::size_t n) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)};
}

Bytes file(const std::string& name) { return read_bytes(image_data() / "files" / name); }
Bytes extra(const std::string& name) { return read_bytes(image_data() / "extra" / name); }

Error error_of(const Bytes& bytes, const DecodeLimits& limits = {}) {
  try {
    decode_image(bytes, limits, "x.img");
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorCode::kInternal, ""};
}

// Every decode.<file> of a file of expected pixels. JPEG and lossy WebP depend on the codec library's
// arithmetic: those may differ by 1; all others must be equal.
void expect_all_decodes(const std::string& folder, const std::string& expected, std::size_t n_expected) {
  std::size_t n_compared = 0;
  for (const auto& [name, want] : read_images(image_data() / expected)) {
    if (name.rfind("decode.", 0) != 0) continue;
    const std::string file_name = name.substr(7);
    const Bytes bytes = read_bytes(image_data() / folder / file_name);
    const bool is_lossy = file_name.find(".jpg") != std::string::npos || file_name.rfind("jpeg", 0) == 0 ||
                          file_name.rfind("lossy", 0) == 0;
    expect_same(decode_image(bytes, {}, file_name), want, is_lossy ? 1 : 0, file_name);
    const ImageInfo info = probe_image(bytes, {}, file_name);
    EXPECT_EQ(info.width_px, want.width_px) << file_name;
    EXPECT_EQ(info.height_px, want.height_px) << file_name;
    ++n_compared;
  }
  EXPECT_EQ(n_compared, n_expected);
}

TEST(Decode, MatchesPillow) { expect_all_decodes("files", "pixels.safetensors", 34); }
TEST(Decode, MatchesPillowForRarerForms) { expect_all_decodes("extra", "extra.safetensors", 91); }

TEST(Decode, ProbeTellsTheForm) {
  const auto info = [](const Bytes& bytes) { return probe_image(bytes, {}, "x"); };
  EXPECT_EQ(info(file("rgba.png")).format, ImageFormat::kPng);
  EXPECT_TRUE(info(file("rgba.png")).has_alpha);
  EXPECT_TRUE(info(file("palette_transparent.png")).has_alpha);
  EXPECT_FALSE(info(file("palette.png")).has_alpha);
  EXPECT_EQ(info(file("exif6.jpg")).orientation, 6);
  EXPECT_EQ(info(extra("exif5.webp")).orientation, 5);
  EXPECT_EQ(info(file("animated.gif")).format, ImageFormat::kGif);
  EXPECT_TRUE(info(file("animated.gif")).is_animated);
  EXPECT_FALSE(info(file("still.gif")).is_animated);
  EXPECT_TRUE(info(extra("moving.webp")).is_animated);
  EXPECT_EQ(info(file("rgb.tiff")).format, ImageFormat::kTiff);
  EXPECT_EQ(info(file("rgb.bmp")).format, ImageFormat::kBmp);
  EXPECT_EQ(info(file("rgb.ppm")).format, ImageFormat::kPnm);
  EXPECT_EQ(to_string(ImageFormat::kWebp), "WebP");
}

// Transparent pixels show the background, not the colour that lies unseen below them.
TEST(Decode, TransparencyIsLaidOverWhite) {
  EXPECT_EQ(decode_image(extra("case_rgba.png"), {}, "").rgb,
            (PoolVector<std::uint8_t>{255, 255, 255, 255, 127, 127}));
  EXPECT_EQ(decode_image(extra("case_palette.png"), {}, "").rgb,
            (PoolVector<std::uint8_t>{255, 255, 255, 0, 0, 255}));
  EXPECT_EQ(decode_image(extra("case_grey_alpha.png"), {}, "").rgb,
            (PoolVector<std::uint8_t>{255, 255, 255}));
}

TEST(Decode, BackgroundIsASetting) {
  const Rgb8 green{0, 200, 0};
  EXPECT_EQ(decode_image(extra("case_rgba.png"), {}, "", green).rgb,
            (PoolVector<std::uint8_t>{0, 200, 0, 128, 100, 0}));
  EXPECT_EQ(decode_image(extra("case_palette.png"), {}, "", green).rgb,
            (PoolVector<std::uint8_t>{0, 200, 0, 0, 0, 255}));
  EXPECT_EQ(decode_image(extra("offset.gif"), {}, "", green).rgb[1], 200);
}

// Inverted CMYK is told from plain one in no other way than by convention: red must stay red.
TEST(Decode, CmykJpegKeepsItsColours) {
  for (const char* name : {"cmyk_solid.jpg", "cmyk_no_app14.jpg"}) {
    const Image image = decode_image(extra(name), {}, name);
    for (std::size_t i = 0; i < image.rgb.size(); i += 3) {
      EXPECT_NEAR(image.rgb[i], 255, 6) << name;
      EXPECT_NEAR(image.rgb[i + 1], 0, 6) << name;
      EXPECT_NEAR(image.rgb[i + 2], 0, 6) << name;
    }
  }
}

TEST(Decode, SixteenBitGreyIsScaledExactly) {
  const Image image = decode_image(extra("grey16_all.png"), {}, "");
  for (unsigned value = 0; value < 65536; ++value)
    ASSERT_EQ(image.rgb[value * 3], static_cast<unsigned>(value / 257.0 + 0.5)) << value;
}

// PNM and BMP of any small size, among them those where a row of pixels is mistaken for a row of channels.
TEST(Decode, SmallAndAwkwardSizes) {
  for (const auto& [w, h] :
       {std::pair{1, 1}, {3, 1}, {1, 3}, {3, 3}, {257, 27}, {332, 27}, {26, 28}, {27, 27}}) {
    const Image want = testing::noise(w, h, 8);
    Bytes bytes = bytes_of(fmt::format("P6 {} {} 255\n", w, h));
    const auto* px = reinterpret_cast<const std::byte*>(want.rgb.data());
    bytes.insert(bytes.end(), px, px + want.rgb.size());
    EXPECT_EQ(decode_image(bytes, {}, ""), want);
    const ImageInfo info = probe_image(bytes, {}, "");
    EXPECT_EQ(info.width_px, w);
    EXPECT_EQ(info.height_px, h);
  }
  for (const char* name : {"one_pixel.png", "wide.png", "tall.png"})
    EXPECT_FALSE(decode_image(file(name), {}, name).rgb.empty());
}

TEST(Decode, FormatIsTakenFromTheBytes) {
  // The name says nothing; a PNG under a JPEG's name is a PNG.
  EXPECT_EQ(decode_image(file("rgb.png"), {}, "picture.jpg"),
            decode_image(file("rgb.png"), {}, "picture.png"));
}

TEST(Decode, ThreadsDoNotMeet) {
  const std::vector<std::string> names = {"rgb.png",   "rgb_420.jpg", "lossy.webp",
                                          "still.gif", "rgb.tiff",    "cmyk.jpg"};
  std::vector<Image> want;
  for (const std::string& name : names) want.push_back(decode_image(file(name), {}, name));
  const Bytes cut = first(file("rgb.tiff"), 3000);
  std::vector<std::thread> threads;
  std::atomic<int> n_wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        for (std::size_t i = 0; i < names.size(); ++i)
          if (decode_image(file(names[i]), {}, names[i]) != want[i]) ++n_wrong;
        try {
          decode_image(cut, {}, "cut.tiff");
          ++n_wrong;
        } catch (const Error& error) {
          if (std::string(error.what()).find("cut.tiff: TIFF: ") != 0) ++n_wrong;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, 0);
}

// --- animations
// ---------------------------------------------------------------------------------------------------------

TEST(Animation, FramesMatchPillow) {
  std::map<std::string, std::vector<Frame>> decoded;
  std::size_t n_compared = 0;
  for (const auto& [name, want] : read_images(image_data() / "extra.safetensors")) {
    if (name.rfind("frame.", 0) != 0) continue;  // frame.<file>.<ext>.<index>.<duration>
    const std::size_t duration_at = name.rfind('.');
    const std::size_t index_at = name.rfind('.', duration_at - 1);
    const std::string file_name = name.substr(6, index_at - 6);
    const auto index = static_cast<std::size_t>(std::stoi(name.substr(index_at + 1)));
    auto& frames = decoded[file_name];
    if (frames.empty()) frames = decode_animation(extra(file_name), {}, file_name);
    ASSERT_LT(index, frames.size()) << name;
    expect_same(frames[index].image, want, 0, name);
    EXPECT_EQ(frames[index].duration_ms, std::stoi(name.substr(duration_at + 1))) << name;
    ++n_compared;
  }
  EXPECT_EQ(n_compared, 16U);
}

TEST(Animation, FirstFrameIsTheStillPicture) {
  for (const char* name : {"moving.webp", "disposal1.gif", "disposal2.gif", "disposal3.gif"})
    EXPECT_EQ(decode_animation(extra(name), {}, name).front().image, decode_image(extra(name), {}, name));
  const auto single = decode_animation(file("exif6.jpg"), {}, "");
  ASSERT_EQ(single.size(), 1U);
  EXPECT_EQ(single[0].image, decode_image(file("exif6.jpg"), {}, ""));
  EXPECT_EQ(decode_animation(file("lossless.webp"), {}, "").size(), 1U);
}

TEST(Animation, LimitsCountAllFrames) {
  for (const char* name : {"moving.webp", "disposal1.gif"}) {
    EXPECT_THROW(decode_animation(extra(name), {.max_frames = 3}, name), Error) << name;
    EXPECT_EQ(decode_animation(extra(name), {.max_frames = 4}, name).size(), 4U);
    EXPECT_THROW(decode_animation(extra(name), {.max_animation_pixels = 24 * 18 * 4 - 1}, name), Error)
        << name;
    EXPECT_EQ(decode_animation(extra(name), {.max_animation_pixels = 24 * 18 * 4}, name).size(), 4U);
  }
}

TEST(Animation, DamagedLaterFramesAreErrors) {
  const Bytes whole = extra("disposal1.gif");
  EXPECT_NO_THROW(decode_image(first(whole, whole.size() - 20), {}, "x.gif"));
  EXPECT_THROW(decode_animation(first(whole, whole.size() - 20), {}, "x.gif"), Error);
  const Bytes webp = extra("moving.webp");
  EXPECT_THROW(decode_animation(first(webp, webp.size() - 20), {}, "x.webp"), Error);
}

// --- hostile input
// ------------------------------------------------------------------------------------------------------

TEST(DecodeErrors, NothingAndNonsense) {
  EXPECT_EQ(error_of({}).code(), ErrorCode::kInvalidFile);
  EXPECT_THAT(error_of({}).what(), HasSubstr("x.img"));
  EXPECT_THAT(error_of(bytes_of("hello, I am a text file")).what(), HasSubstr("x.img: not an image"));
  Bytes random;
  for (unsigned i = 0; i < 20; ++i) random.push_back(static_cast<std::byte>(i * 37 + 11));
  EXPECT_EQ(error_of(random).code(), ErrorCode::kInvalidFile);
  EXPECT_EQ(error_of(bytes_of("P")).code(), ErrorCode::kInvalidFile);
}

TEST(DecodeErrors, OtherFormatsAreNamed) {
  using namespace std::string_literals;
  for (const auto& [start, name] : {std::pair{"\0\0\0\x20"s + "ftypavif", "AVIF"},
                                    {"\0\0\0\x20"s + "ftypheic", "HEIF"},
                                    {"%PDF-1.7"s, "PDF"},
                                    {"<svg xmlns"s, "SVG"},
                                    {"\xff\x0a\0\0"s, "JPEG XL"}}) {
    EXPECT_EQ(error_of(bytes_of(start)).code(), ErrorCode::kUnsupported) << name;
    EXPECT_THAT(error_of(bytes_of(start)).what(), HasSubstr(name));
  }
}

TEST(DecodeErrors, VariantsThatAreNotReadAreNamed) {
  Bytes jpeg = file("grey.jpg");
  const std::array<std::byte, 2> sof{std::byte{0xFF}, std::byte{0xC0}};
  const auto at = std::search(jpeg.begin(), jpeg.end(), sof.begin(), sof.end());
  ASSERT_NE(at, jpeg.end());
  at[4] = std::byte{12};
  EXPECT_EQ(error_of(jpeg).code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error_of(jpeg).what(), HasSubstr("12"));

  const auto with_tag = [](std::uint8_t tag_low,
                           std::uint8_t value) {  // patches a SHORT of a little-endian directory
    Bytes tiff = extra("grey16_little.tiff");
    for (std::size_t i = 10; i + 12 <= tiff.size(); i += 12)
      if (tiff[i] == std::byte{tag_low} && tiff[i + 1] == std::byte{1}) {
        tiff[i + 8] = std::byte{value};
        return tiff;
      }
    ADD_FAILURE() << "no such tag";
    return tiff;
  };
  EXPECT_THAT(error_of(with_tag(262 - 256, 8)).what(), HasSubstr("photometric interpretation 8"));
  EXPECT_THAT(error_of(with_tag(258 - 256, 32)).what(), HasSubstr("32 bits per sample"));
  Bytes bmp = file("rgb.bmp");
  bmp[28] = std::byte{2};
  EXPECT_THAT(error_of(bmp).what(), HasSubstr("2 bits per pixel"));
}

// The truncation case: a JPEG without its last 128 bytes, without its half, without only its end marker.
TEST(DecodeErrors, TruncatedJpeg) {
  for (const char* name : {"rgb_444.jpg", "progressive.jpg", "cmyk.jpg", "grey.jpg"}) {
    const Bytes whole = file(name);
    for (const std::size_t cut : {std::size_t{2}, std::size_t{128}, whole.size() / 2, whole.size() - 3}) {
      const Error error = error_of(first(whole, whole.size() - cut));
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFile) << name << " minus " << cut;
      EXPECT_THAT(error.what(), HasSubstr("x.img: JPEG: ")) << name;
    }
  }
}

// JPEG has no checksum, so damage that happens to be valid codes cannot be seen; an end marker in the middle
// of the data or restart markers out of order can.
TEST(DecodeErrors, DamagedJpegData) {
  Bytes early_end = file("rgb_444.jpg");
  early_end[2000] = std::byte{0xFF};
  early_end[2001] = std::byte{0xD9};
  EXPECT_EQ(error_of(early_end).code(), ErrorCode::kInvalidFile);
  Bytes restarts = extra("restart.jpg");
  std::size_t n_removed = 0;  // every second restart marker becomes fill bytes
  for (std::size_t i = 600; i + 1 < restarts.size(); ++i)
    if (restarts[i] == std::byte{0xFF} && (restarts[i + 1] & std::byte{0xF9}) == std::byte{0xD1}) {
      restarts[i] = restarts[i + 1] = std::byte{0x55};
      ++n_removed;
    }
  ASSERT_GT(n_removed, 1U);
  EXPECT_EQ(error_of(restarts).code(), ErrorCode::kInvalidFile);
}

// A wrong CRC, a cut IDAT, no IEND.
TEST(DecodeErrors, DamagedPng) {
  const Bytes whole = file("rgb.png");
  Bytes wrong_crc = whole;
  wrong_crc[29] ^= std::byte{1};  // last byte of IHDR's CRC is at 32, the first at 29
  EXPECT_THAT(error_of(wrong_crc).what(), HasSubstr("x.img: PNG: "));
  Bytes wrong_pixel = whole;
  wrong_pixel[1000] ^= std::byte{1};
  EXPECT_EQ(error_of(wrong_pixel).code(), ErrorCode::kInvalidFile);
  EXPECT_EQ(error_of(first(whole, whole.size() / 2)).code(), ErrorCode::kInvalidFile);
  EXPECT_EQ(error_of(first(whole, whole.size() - 12)).code(), ErrorCode::kInvalidFile);  // no IEND
  EXPECT_EQ(error_of(first(whole, whole.size() - 2)).code(), ErrorCode::kInvalidFile);
}

struct Outcomes {
  int n_files = 0, n_decoded = 0, n_refused = 0;
};

// Any prefix of any picture, and any picture with a byte changed, is decoded or refused with an Error that
// names it.
void expect_error_or_image(const Bytes& bytes, const std::string& what, Outcomes& outcomes) {
  for (const bool all_frames : {false, true}) try {
      const std::vector<Frame> frames =
          all_frames ? decode_animation(bytes, {.max_pixels = 1'000'000}, "x.img")
                     : std::vector<Frame>{{decode_image(bytes, {.max_pixels = 1'000'000}, "x.img"), 0}};
      EXPECT_FALSE(frames.empty()) << what;
      ++outcomes.n_decoded;
    } catch (const Error& error) {
      ++outcomes.n_refused;
      EXPECT_EQ(std::string(error.what()).rfind("x.img: ", 0), 0U) << what << ": " << error.what();
      EXPECT_NE(error.code(), ErrorCode::kInternal) << what << ": " << error.what();
    }
}

TEST(DecodeErrors, TruncationAnywhere) {
  Outcomes outcomes;
  for (const char* folder : {"files", "extra"})
    for (const auto& entry : std::filesystem::directory_iterator(image_data() / folder)) {
      const Bytes whole = read_bytes(entry.path());
      ++outcomes.n_files;
      const std::size_t step = std::max<std::size_t>(1, whole.size() / 40);
      for (std::size_t n = 0; n < whole.size(); n += step)
        expect_error_or_image(first(whole, n), entry.path().filename().string(), outcomes);
    }
  EXPECT_GE(outcomes.n_files, 50);
  // Most cuts go through the data of the picture; behind it some formats have bytes that nobody needs.
  EXPECT_GT(outcomes.n_refused, 8 * outcomes.n_decoded);
}

TEST(DecodeErrors, FlippedBytesAnywhere) {
  std::uint32_t state = 1;
  Outcomes outcomes;
  for (const char* folder : {"files", "extra"})
    for (const auto& entry : std::filesystem::directory_iterator(image_data() / folder)) {
      const Bytes whole = read_bytes(entry.path());
      ++outcomes.n_files;
      for (int i = 0; i < 40; ++i) {
        Bytes bytes = whole;
        state = state * 1664525U + 1013904223U;
        // Half of the changes hit the first 64 bytes, where headers are.
        const std::size_t at =
            (state >> 8) % (i % 2 == 0 ? std::min<std::size_t>(64, bytes.size()) : bytes.size());
        bytes[at] = static_cast<std::byte>(state >> 24);
        expect_error_or_image(bytes, fmt::format("{} byte {}", entry.path().filename().string(), at),
                              outcomes);
      }
    }
  EXPECT_GE(outcomes.n_files, 50);
  EXPECT_GT(outcomes.n_decoded, 0);
  EXPECT_GT(outcomes.n_refused, 0);
}

TEST(DecodeErrors, TruncatedFilesOfTheOtherFormats) {
  for (const char* name :
       {"lossy.webp", "lossless.webp", "alpha.webp", "still.gif", "rgb.tiff", "rgb.bmp", "rgb.ppm"}) {
    const Bytes whole = file(name);
    EXPECT_EQ(error_of(first(whole, whole.size() / 2)).code(), ErrorCode::kInvalidFile) << name;
    EXPECT_EQ(error_of(first(whole, whole.size() - 40)).code(), ErrorCode::kInvalidFile) << name;
  }
}

// --- limits
// -------------------------------------------------------------------------------------------------------------

TEST(DecodeLimits, FileSizeSidesAndPixels) {
  for (const char* name : {"rgb.png", "rgb_444.jpg", "lossless.webp", "lossy.webp", "still.gif", "rgb.tiff",
                           "rgb.bmp", "rgb.ppm"}) {
    const Bytes bytes = file(name);  // 61 x 43
    for (const DecodeLimits& limits :
         {DecodeLimits{.max_file_bytes = bytes.size() - 1}, DecodeLimits{.max_pixels = 61 * 43 - 1},
          DecodeLimits{.max_side_px = 60}}) {
      EXPECT_EQ(error_of(bytes, limits).code(), ErrorCode::kInvalidArgument) << name;
      EXPECT_THROW(probe_image(bytes, limits, "x"), Error) << name;
    }
    EXPECT_NO_THROW(decode_image(
        bytes, {.max_file_bytes = bytes.size(), .max_pixels = 61 * 43, .max_side_px = 61}, name));
  }
}

// Headers that promise much are refused before memory is taken for it: the address space of a test is not
// exhausted, and the time stays short.
TEST(DecodeLimits, HugeSizesInSmallFiles) {
  Bytes png = file("one_pixel.png");
  for (std::size_t i = 16; i < 24; ++i) png[i] = std::byte{0x7F};
  EXPECT_EQ(error_of(png).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of(bytes_of("P6 999999999 999999999 255\n")).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of(bytes_of("P6 8000 8000 255\nabc")).code(), ErrorCode::kInvalidFile);
  EXPECT_EQ(error_of(bytes_of("P5 0 5 255\n")).code(), ErrorCode::kInvalidFile);
  EXPECT_EQ(error_of(bytes_of("P2 2 2 255\n1 2 3 256")).code(), ErrorCode::kInvalidFile);
  EXPECT_EQ(error_of(bytes_of("P2 2 2 99999999999\n1 2 3 4")).code(), ErrorCode::kInvalidFile);
  Bytes bmp = file("rgb.bmp");
  bmp[18 + 2] = std::byte{0x10};  // width + 1048576
  EXPECT_EQ(error_of(bmp).code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace triptych
