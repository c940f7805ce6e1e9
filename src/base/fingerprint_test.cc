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

// From Python's hashlib.blake2b(digest_size=16, key=bytes(range(32))).
TEST(Fingerprint, IsKeyedBlake2b) {
  struct Case {
    std::size_t n;
    std::uint64_t low, high;
  };
  const Case cases[] = {{0, 0xd58f88e7bc97af3d, 0x9c4547f66bc67397},
                        {1, 0x237439a536770fcb, 0x8cdd42885b586166},
                        {128, 0x46a11424f03ad445, 0x4d55a37d3f3c80c8},
                        {129, 0xce99de7a7a51b5aa, 0x7da23e3daa810a99},
                        {1000, 0x6fcd09dd37971dea, 0xea518138a0cd8fdc}};
  for (const Case& c : cases)
    EXPECT_EQ(keyed_fingerprint(counting(c.n), counting(32)), (Fingerprint{c.low, c.high})) << c.n;
}

TEST(Fingerprint, TellsContentsApartWithinAProcess) {
  std::vector<std::byte> a(100), b(100);
  EXPECT_EQ(fingerprint(a), fingerprint(b));
  b[99] = std::byte{1};
  EXPECT_NE(fingerprint(a), fingerprint(b));
  EXPECT_FALSE(fingerprint({}).empty());
  EXPECT_TRUE(Fingerprint{}.empty());
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
