// Emulated tiles against their definition, and that loops over tiles leave a thread as they found it.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/probe/probe.h"
#include "backend/cpu/kernels/tiles/emulated_tiles.h"
#include "backend/cpu/kernels/tiles/tile_scope.h"
#include "base/cpu_info.h"
#include "base/half.h"

namespace triptych::kernels {
namespace {

// Rows of C are those of A, its columns those of B, A has as many columns as B rows.
TileConfig shapes(int m, int n, int k) {
  TileConfig out;
  out.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    out.rows[tile] = static_cast<std::uint8_t>(tile == 2 ? k : m);
    out.row_bytes[tile] = static_cast<std::uint16_t>(tile == 1 ? 4 * k : 4 * n);
  }
  return out;
}

std::vector<std::uint8_t> random_bytes(std::size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<std::uint8_t> out(n);
  for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(engine());
  return out;
}

TEST(EmulatedTiles, MultiplyBytes) {
  for (const auto& [m, n, k] : {std::array<int, 3>{16, 16, 16}, {3, 5, 7}, {1, 16, 2}}) {
    EmulatedTiles::configure(shapes(m, n, k));
    const auto a = random_bytes(16 * 64, 1), b = random_bytes(16 * 64, 2);
    std::vector<std::int32_t> c(16 * 16, 1'000'000'000);
    const auto before = c;
    for (const bool signed_first : {true, false}) {
      c = before;
      EmulatedTiles::load<0>(c.data(), 64);
      EmulatedTiles::load<1>(a.data(), 64);
      EmulatedTiles::load<2>(b.data(), 64);
      if (signed_first) {
        EmulatedTiles::dot_su<0, 1, 2>();
      } else {
        EmulatedTiles::dot_us<0, 1, 2>();
      }
      EmulatedTiles::store<0>(c.data(), 64);
      for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 16; ++j) {
          std::int64_t sum = before[static_cast<std::size_t>(16 * i + j)];
          for (int l = 0; i < m && j < n && l < 4 * k; ++l) {
            const std::uint8_t x = a[static_cast<std::size_t>(64 * i + l)];
            const std::uint8_t w = b[static_cast<std::size_t>(64 * (l / 4) + 4 * j + l % 4)];
            sum += signed_first ? static_cast<std::int8_t>(x) * w : x * static_cast<std::int8_t>(w);
          }
          ASSERT_EQ(c[static_cast<std::size_t>(16 * i + j)], static_cast<std::int32_t>(sum))
              << m << " " << n << " " << k << " at " << i << "," << j;
        }
    }
  }
  EmulatedTiles::release();
}

TEST(EmulatedTiles, MultiplyBf16WithoutSubnormals) {
  EmulatedTiles::configure(shapes(2, 2, 1));
  const float tiny = 0x1p-127F;  // subnormal, as bfloat16 too
  const auto pair = [](float even, float odd) {
    return static_cast<std::uint32_t>(f32_to_bf16(even)) | static_cast<std::uint32_t>(f32_to_bf16(odd)) << 16;
  };
  const std::uint32_t a[2] = {pair(2, 3), pair(tiny, 1)};
  const std::uint32_t b[2] = {pair(5, -7), pair(0x1p126F, 0)};
  float c[4] = {0.5F, tiny, 0, 1};
  EmulatedTiles::load<0>(c, 8);
  EmulatedTiles::load<1>(a, 4);
  EmulatedTiles::load<2>(b, 8);
  EmulatedTiles::dot_bf16<0, 1, 2>();
  EmulatedTiles::store<0>(c, 8);
  EXPECT_EQ(c[0], 0.5F + 2 * 5 - 3 * 7);
  EXPECT_EQ(c[1], 0x1p127F) << "its sum was subnormal";
  EXPECT_EQ(c[2], -7.0F);
  EXPECT_EQ(c[3], 1.0F);
  EmulatedTiles::release();
}

// What the processor answers with a fault.
TEST(EmulatedTiles, RefuseWhatTheProcessorRefuses) {
  std::uint8_t bytes[kTile_bytes] = {};
  EmulatedTiles::release();
  EXPECT_ANY_THROW(EmulatedTiles::load<0>(bytes, 64)) << "not configured";
  EXPECT_ANY_THROW((EmulatedTiles::dot_su<0, 1, 2>()));
  EmulatedTiles::configure(kWholeTiles);
  EXPECT_ANY_THROW((EmulatedTiles::dot_su<0, 0, 2>())) << "not three tiles";
  TileConfig wrong = kWholeTiles;
  wrong.rows[3] = 17;
  EXPECT_ANY_THROW(EmulatedTiles::configure(wrong));
  wrong = kWholeTiles;
  wrong.row_bytes[8] = 64;
  EXPECT_ANY_THROW(EmulatedTiles::configure(wrong)) << "there are eight";
  EmulatedTiles::configure(shapes(4, 16, 8));
  EXPECT_ANY_THROW((EmulatedTiles::dot_su<0, 2, 1>())) << "shapes do not fit";
  EmulatedTiles::release();
}

TEST(EmulatedTiles, BelongToAThread) {
  EmulatedTiles::configure(kWholeTiles);
  TileConfig other = kWholeTiles;
  std::thread([&] { EmulatedTiles::save(other); }).join();
  EXPECT_EQ(other.palette, 0);
  EmulatedTiles::release();
}

TEST(EmulatedTiles, LoopsOfTheProbeCountWhatTheyDo) {
  alignas(64) float sink[4] = {1.0F, 1.0F, 1.0F, 0.0F};
  EXPECT_EQ(kProbeEmulatedTiles.int8_dot(3, sink), 2.0 * 3 * 4 * 16 * 16 * 64);
  EXPECT_EQ(sink[3], 3 * 64);  // the low byte of a sum of ones
  EXPECT_EQ(kProbeEmulatedTiles.bf16_dot(3, sink), 2.0 * 3 * 4 * 16 * 16 * 32);
}

// Through the loop's own functions: begin stores what is configured, end configures what it is given.
void expect_foreign_configuration_stays(const TileLoop& loop) {
  TileConfig nothing, seen;
  loop.begin(&nothing);
  EXPECT_EQ(nothing.palette, 0) << "this thread should have no tiles";
  const TileConfig foreign = shapes(5, 7, 3);
  loop.end(&foreign);  // as if somebody else had configured tiles in this thread
  {
    const TileScope outer(&loop);
    const TileScope inner(&loop);
  }
  loop.begin(&seen);
  EXPECT_EQ(std::memcmp(&seen, &foreign, sizeof seen), 0);
  loop.end(&nothing);
  loop.begin(&seen);
  EXPECT_EQ(std::memcmp(&seen, &nothing, sizeof seen), 0) << "released";
  loop.end(&nothing);
}

TEST(TileScope, LeavesAForeignConfiguration) {
  expect_foreign_configuration_stays(*kGemmS8EmulatedTiles.tiles);
}

TEST(TileScope, LeavesAForeignConfigurationOfTheProcessor) {
  const GemmS8Kernels* kernels = gemm_s8_tile_kernels(active_features());
  if (kernels == nullptr) GTEST_SKIP() << "this machine has no AMX, or it is not in use";
  expect_foreign_configuration_stays(*kernels->tiles);
}

TEST(TileScope, OfNoTilesDoesNothing) {
  EmulatedTiles::configure(kWholeTiles);
  { const TileScope scope(nullptr); }
  TileConfig seen;
  EmulatedTiles::save(seen);
  EXPECT_EQ(seen.palette, 1);
  EmulatedTiles::release();
}

}  // namespace
}  // namespace triptych::kernels
