#include "base/rng.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace triptych {
namespace {

using Block = std::array<std::uint32_t, 4>;

// Known answers of the authors' Random123 library (examples/kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, IsReproducibleAndSeekable) {
  Rng a(42, 3);
  std::vector<std::uint32_t> first;
  for (int i = 0; i < 50; ++i) first.push_back(a.next_u32());
  EXPECT_EQ(a.position(), 50u);
  for (const std::uint64_t at : {0U, 1U, 17U, 4U, 49U}) {
    Rng b(42, 3);
    b.seek(at);
    EXPECT_EQ(b.next_u32(), first[at]);
  }
  EXPECT_EQ(first[0], philox4x32({0, 0, 3, 0}, {42, 0})[0]);
  EXPECT_EQ(first[5], philox4x32({1, 0, 3, 0}, {42, 0})[1]);
}

TEST(Rng, SeedsAndStreamsDiffer) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (std::uint64_t stream = 0; stream < 20; ++stream) seen.insert(Rng(seed, stream).next_u64());
  seen.insert(Rng(std::uint64_t{1} << 32).next_u64());
  seen.insert(Rng(0, std::uint64_t{1} << 32).next_u64());
  EXPECT_EQ(seen.size(), 402u);
}

TEST(Rng, UniformStaysInRangeAndFillsIt) {
  Rng rng(1);
  std::vector<int> bins(10);
  for (int i = 0; i < 100000; ++i) {
    const double x = rng.uniform();
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    ++bins[static_cast<std::size_t>(x * 10)];
    const float y = rng.uniform_f32();
    ASSERT_GE(y, 0.0f);
    ASSERT_LT(y, 1.0f);
  }
  // Standard deviation of a bin is 95; six of them.
  for (const int n : bins) EXPECT_NEAR(n, 10000, 570);
}

TEST(Rng, BelowIsUnbiased) {
  Rng rng(2);
  EXPECT_EQ(rng.below(1), 0u);
  std::vector<int> bins(7);
  for (int i = 0; i < 70000; ++i) ++bins[rng.below(7)];
  for (const int n : bins) EXPECT_NEAR(n, 10000, 560);
  // A bound of 3 * 2^62 would show bias at once: without rejection the lowest third is twice as likely.
  int n_low = 0;
  const std::uint64_t third = std::uint64_t{1} << 62;
  for (int i = 0; i < 30000; ++i) n_low += rng.below(3 * third) < third ? 1 : 0;
  EXPECT_NEAR(n_low, 10000, 500);
}

}  // namespace
}  // namespace triptych
