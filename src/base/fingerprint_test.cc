#include "base/fingerprint.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/digest.h"

namespace triptych {
namespace {

std::vector<std::byte> counting(std::size_t n) {
  std::vector<std::byte> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(i & 255U);
  return out;
}

// From Python's hashlib.blake2b(digest_size=32, key=bytes(range(32))).
TEST(Fingerprint, IsKeyedBlake2b) {
  struct Case {
    std::size_t n;
    Fingerprint expected;
  };
  const Case cases[] = {
      {0, {0x1380fc13a9e7514e, 0x75a1ccfe8028a57d, 0x2681c6d517e181bf, 0x0dea1735037427dc}},
      {1, {0x3bbdeeeaa493ff41, 0x922af6a63834a978, 0xb782e659c85959ab, 0x4dca976140ef7d2c}},
      {128, {0x16f31e63f1938813, 0xda00d86e5d512956, 0x94d2ce6d92b77137, 0xbcee1d3507755c20}},
      {129, {0x304371bb5cf760ca, 0x51d34e8bf2d846c0, 0x962ab06b7781eea3, 0x5c3d3e57fe46b6ab}},
      {1000, {0x964b26b0e119ef35, 0xb97ad0dec1f9d2e9, 0xb55965c0313eb810, 0x4af5442e68d44a79}}};
  for (const Case& c : cases) EXPECT_EQ(keyed_fingerprint(counting(c.n), counting(32)), c.expected) << c.n;
}

TEST(Fingerprint, TellsContentsApart) {
  std::vector<std::byte> a(100), b(100);
  EXPECT_EQ(fingerprint(a), fingerprint(b));
  b[99] = std::byte{1};
  EXPECT_NE(fingerprint(a), fingerprint(b));
  EXPECT_FALSE(fingerprint({}).empty());
  EXPECT_TRUE(Fingerprint{}.empty());
  EXPECT_FALSE((Fingerprint{0, 0, 0, 1}).empty());
}

TEST(Fingerprint, IsWrittenAsTheDigestOfTheSameBytes) {
  const Fingerprint of_nothing = fingerprint({});
  const std::string hex = to_hex(of_nothing);
  EXPECT_EQ(hex, digest_hex({}));
  EXPECT_EQ(fingerprint_from_hex(hex), of_nothing);
  std::string upper = hex;
  upper[1] = 'E';  // was e
  for (const std::string& bad :
       {hex.substr(1), hex + "0", std::string(64, 'g'), upper, std::string(), std::string(64, ' ')})
    EXPECT_EQ(fingerprint_from_hex(bad), std::nullopt) << bad;
}

// From `b2sum -l 256`.
TEST(Digest, IsBlake2bOfPieces) {
  EXPECT_EQ(digest_hex({}), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  Digest digest;
  for (const char c : {'a', 'b', 'c'}) digest.add(std::as_bytes(std::span(&c, 1)));
  EXPECT_EQ(digest.finish_hex(), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

}  // namespace
}  // namespace triptych
