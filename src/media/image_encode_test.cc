// What is written as PNG is read back bit for bit.
#include "media/image_encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "media/image_decode.h"
#include "media/testing/test_images.h"

namespace triptych {
namespace {

TEST(EncodePng, DecodesToTheSamePixels) {
  for (const auto& [width, height] : {std::pair(1, 1), std::pair(1, 300), std::pair(300, 1), std::pair(7, 5),
                                      std::pair(640, 480), std::pair(1023, 3)}) {
    const Image image = testing::noise(width, height, static_cast<std::uint32_t>(width + height));
    const std::vector<std::byte> bytes = encode_png(image);
    EXPECT_EQ(probe_image(bytes, {}, "x").format, ImageFormat::kPng);
    EXPECT_EQ(decode_image(bytes, {}, "x"), image) << width << "x" << height;
  }
}

TEST(EncodePng, RefusesWhatItCannotWrite) {
  EXPECT_THROW(encode_png({}), Error);
  EXPECT_THROW(encode_png({2, 2, PoolVector<std::uint8_t>(11)}), Error);
  const Image wide{1'000'001, 1, PoolVector<std::uint8_t>(3'000'003)};
  try {
    encode_png(wide);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("1000001x1"));
  }
}

}  // namespace
}  // namespace triptych
