#include "text/base64.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

// RFC 4648, section 10.
TEST(Base64, DecodesTheVectorsOfTheRfc) {
  EXPECT_EQ(base64_decode(""), "");
  EXPECT_EQ(base64_decode("Zg=="), "f");
  EXPECT_EQ(base64_decode("Zm8="), "fo");
  EXPECT_EQ(base64_decode("Zm9v"), "foo");
  EXPECT_EQ(base64_decode("Zm9vYg=="), "foob");
  EXPECT_EQ(base64_decode("Zm9vYmE="), "fooba");
  EXPECT_EQ(base64_decode("Zm9vYmFy"), "foobar");
}

TEST(Base64, PaddingIsOptional) {
  EXPECT_EQ(base64_decode("Zg"), "f");
  EXPECT_EQ(base64_decode("Zg="), "f");
  EXPECT_EQ(base64_decode("Zm8"), "fo");
}

TEST(Base64, KeepsEveryByte) {
  EXPECT_EQ(base64_decode("AP/+gA=="), std::string("\0\xff\xfe\x80", 4));
  EXPECT_EQ(base64_decode("++//"), "\xfb\xef\xff");
}

TEST(Base64, RefusesOtherCharactersAndLengths) {
  for (const char* text : {"Z", "Zm9vY", "Zm9v!", "Zm 9v", "Zm9v\n", "-_-_", "Zg===", "Zg==Zg==", "=Zg",
                           "\xc3\xa9Zg", "\x80gZg"})
    EXPECT_EQ(base64_decode(text), std::nullopt) << text;
}

// Bits that no byte takes: no encoder sets them, and two spellings of one token would be one too many.
TEST(Base64, RefusesBitsLeftOver) {
  EXPECT_EQ(base64_decode("Zh=="), std::nullopt);
  EXPECT_EQ(base64_decode("Zm9"), std::nullopt);
}

}  // namespace
}  // namespace triptych
