#include "base/fingerprint.h"

#include <gtest/gtest.h>

#include <vector>

namespace triptych {
namespace {

// Key 00 01 .. 0f, message 00 01 .. n-1; from OpenSSL 3 (openssl mac -macopt size:16 SIPHASH), bytes in
// order.
TEST(Fingerprint, IsSipHash) {
  struct Case {
    std::size_t n;
    std::uint64_t low, high;
  };
  const auto swap = [](std::uint64_t x) {
    std::uint64_t out = 0;
    for (int i = 0; i < 8; ++i) out = out << 8 | ((x >> (8 * i)) & 255);
    return out;
  };
  const Case cases[] = {{0, 0xA3817F04BA25A8E6, 0x6DF67214C7550293},
                        {1, 0xDA87C1D86B99AF44, 0x347659119B22FC45},
                        {15, 0x5493E99933B0A811, 0x7E08EC0F97CFC3D9},
                        {16, 0x6EE2A4CA67B054BB, 0xFD3315BF85230577},
                        {63, 0x5150D1772F50834A, 0x503E069A973FBD7C}};
  for (const Case& c : cases) {
    std::vector<std::byte> message(c.n);
    for (std::size_t i = 0; i < c.n; ++i) message[i] = static_cast<std::byte>(i);
    const Fingerprint got = sip_hash_128(message, {0x0706050403020100, 0x0F0E0D0C0B0A0908});
    EXPECT_EQ(got, (Fingerprint{swap(c.low), swap(c.high)})) << c.n;
  }
}

TEST(Fingerprint, TellsContentsApartWithinAProcess) {
  std::vector<std::byte> a(100), b(100);
  EXPECT_EQ(fingerprint(a), fingerprint(b));
  b[99] = std::byte{1};
  EXPECT_NE(fingerprint(a), fingerprint(b));
  EXPECT_FALSE(fingerprint({}).empty());
  EXPECT_TRUE(Fingerprint{}.empty());
}

}  // namespace
}  // namespace triptych
