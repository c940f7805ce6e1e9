#include "backend/cpu/kernels/attention_s8/attention_s8.h"

#include "backend/cpu/kernels/test_util.h"
#include "backend/cpu/kernels/tiles/tile_scope.h"

namespace triptych::kernels {
namespace {

std::vector<std::int8_t> random_codes(std::size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> code(-127, 127);
  std::vector<std::int8_t> out(n);
  for (auto& x : out) x = static_cast<std::int8_t>(code(engine));
  return out;
}

std::size_t up(int n, int to) { return static_cast<std::size_t>((n + to - 1) / to * to); }

// Rows in separate blocks of exactly their size, so that a sanitizer sees reads beyond.
struct Rows {
  std::vector<std::vector<std::int8_t>> rows;
  std::vector<const void*> pointers;
  Rows(int n, int width, unsigned seed) {
    for (int i = 0; i < n; ++i)
      rows.push_back(random_codes(static_cast<std::size_t>(width), seed + static_cast<unsigned>(i)));
    for (const auto& row : rows) pointers.push_back(row.data());
  }
};

TEST(AttentionS8, PacksLikeTheScalarVersion) {
  for (const Isa isa : usable_isas())
    for (const int head_dim : {1, 4, 24, 63, 64, 65, 80, 88, 96, 128, 130}) {
      for (const int n : {1, 3, 15, 16, 17, 33, 63, 64}) {
        const Rows rows(n, head_dim, 7);
        std::vector<std::uint8_t> expected(up(head_dim, 4) * 64, 1);
        std::vector<std::uint8_t> got(expected.size(), 2);
        kAttentionS8Scalar.pack_keys({n, head_dim, rows.pointers.data(), expected.data()});
        attention_s8_kernels(isa).pack_keys({n, head_dim, rows.pointers.data(), got.data()});
        ASSERT_EQ(got, expected) << to_string(isa) << " " << n << " keys of " << head_dim;
      }
      for (const int n : {1, 4, 6, 63, 64, 255, 256})
        for (int column = 0; column < head_dim; column += 64) {
          const Rows rows(n, head_dim, 9);
          std::vector<std::int8_t> expected(up(n, 4) * 64, 1);
          std::vector<std::int8_t> got(expected.size(), 2);
          kAttentionS8Scalar.pack_values({n, head_dim, column, rows.pointers.data(), expected.data()});
          attention_s8_kernels(isa).pack_values({n, head_dim, column, rows.pointers.data(), got.data()});
          ASSERT_EQ(got, expected) << to_string(isa) << " " << n << " values of " << head_dim;
        }
    }
}

struct Softened {
  std::vector<float> weights;  // codes times scale
  float top, sum, rescale, scale;
  bool has_low;
};
// One row alone; `row` moves it to another place of the tile, between rows of 16 bits.
Softened soften(const AttentionS8Kernels& kernels, const std::vector<float>& scores,
                const std::vector<float>& value_scale, int n, int n_visible, float top, float sum,
                int row = 0) {
  constexpr std::size_t kRows = kS8AttentionRows;
  const auto r = static_cast<std::size_t>(row);
  std::vector<float> s(kRows * kS8ChunkKeys, 3.0F);
  std::vector<float> v(kS8ChunkKeys, 0.0F);
  for (std::size_t i = 0; i < kRows; ++i) s[i * kS8ChunkKeys] = 30.0F;  // stands out
  std::copy(scores.begin(), scores.begin() + n, s.begin() + row * kS8ChunkKeys);
  std::copy(value_scale.begin(), value_scale.begin() + n, v.begin());
  std::vector<std::int32_t> visible(kRows, n);
  std::vector<float> tops(kRows, top);
  std::vector<float> sums(kRows, sum);
  std::vector<float> scales(kRows);
  std::vector<float> rescales(kRows);
  visible[r] = n_visible;
  std::vector<std::uint8_t> high(kRows * kS8ChunkKeys, 1);
  std::vector<std::uint8_t> low(kRows * kS8ChunkKeys, 0);
  const bool has_low = kernels.soften({row + 1, n, visible.data(), s.data(), v.data(), tops.data(),
                                       sums.data(), high.data(), low.data(), scales.data(), rescales.data()});
  Softened out{{}, tops[r], sums[r], rescales[r], scales[r], has_low};
  for (std::size_t j = r * kS8ChunkKeys; j < r * kS8ChunkKeys + static_cast<std::size_t>(n); ++j)
    out.weights.push_back(out.scale * static_cast<float>(256 * high[j] + low[j]));
  return out;
}

TEST(AttentionS8, WeightsKeepSixteenBitsWhereOneStandsOut) {
  for (const Isa isa : usable_isas())
    for (const int n : {4, 16, 20, 64, 252, 256})
      for (const int hidden : {0, 1, 3, 4, 5}) {
        // The last are much alike.
        std::vector<float> scores = random_floats(256, 11, hidden == 5 ? 0.5F : 3.0F);
        std::vector<float> values = random_floats(256, 12);
        for (float& v : values) v = std::fabs(v) + 0.01F;
        const int n_visible = std::max(0, n - hidden);
        const float before = 1.5F;
        const Softened got = soften(attention_s8_kernels(isa), scores, values, n, n_visible, before, 2.0F);
        float top = before;
        for (int j = 0; j < n_visible; ++j) top = std::max(top, scores[static_cast<std::size_t>(j)]);
        double sum = 2.0 * std::exp2(static_cast<double>(before) - static_cast<double>(top));
        double largest = 0;
        double all = 0;
        std::vector<double> expected;
        for (int j = 0; j < n; ++j) {
          const auto i = static_cast<std::size_t>(j);
          const double p = j < n_visible ? std::exp2(static_cast<double>(scores[i] - top)) : 0.0;
          sum += p;
          expected.push_back(p * static_cast<double>(values[i]));
          largest = std::max(largest, expected.back());
          all += expected.back();
        }
        EXPECT_EQ(got.has_low, all < 16 * largest) << "n " << n;
        const double levels = got.has_low ? 65535 : 255;
        EXPECT_EQ(got.top, top);
        EXPECT_NEAR(got.sum, sum, sum * 1e-5);
        EXPECT_NEAR(got.rescale, std::exp2(static_cast<double>(before - top)), 1e-5);
        for (int j = 0; j < n; ++j)
          ASSERT_NEAR(got.weights[static_cast<std::size_t>(j)], expected[static_cast<std::size_t>(j)],
                      largest * (0.51 / levels + 5e-6))
              << to_string(isa) << " n " << n << " visible " << n_visible << " at " << j;
      }
}

// What a row becomes does not depend on its neighbours.
TEST(AttentionS8, RowsOfATileAreIndependent) {
  for (const Isa isa : usable_isas())
    for (const float spread : {0.2F, 6.0F}) {
      const std::vector<float> scores = random_floats(256, 21, spread);
      const std::vector<float> values(256, 0.25F);
      const Softened alone = soften(attention_s8_kernels(isa), scores, values, 200, 199, -INFINITY, 0);
      const Softened last = soften(attention_s8_kernels(isa), scores, values, 200, 199, -INFINITY, 0, 5);
      EXPECT_EQ(alone.has_low, spread > 1) << to_string(isa);
      EXPECT_TRUE(last.has_low);
      EXPECT_EQ(alone.weights, last.weights) << to_string(isa);
      EXPECT_EQ(alone.sum, last.sum);
      EXPECT_EQ(alone.scale, last.scale);
    }
}

TEST(AttentionS8, NothingVisibleLeavesTheRowAlone) {
  for (const Isa isa : usable_isas()) {
    const std::vector<float> scores = random_floats(64, 1);
    const std::vector<float> values(64, 0.5F);
    const Softened first = soften(attention_s8_kernels(isa), scores, values, 64, 0, -INFINITY, 0.0F);
    EXPECT_EQ(first.sum, 0.0F);
    EXPECT_EQ(first.top, -INFINITY);
    for (const float w : first.weights) EXPECT_EQ(w, 0.0F);
    const Softened later = soften(attention_s8_kernels(isa), scores, values, 64, 0, 2.0F, 3.0F);
    EXPECT_EQ(later.rescale, 1.0F);
    EXPECT_EQ(later.sum, 3.0F);
  }
}

TEST(AttentionS8, NanReachesTheRow) {
  for (const Isa isa : usable_isas()) {
    std::vector<float> scores = random_floats(64, 1);
    std::vector<float> values(64, 0.5F);
    values[3] = NAN;
    EXPECT_TRUE(std::isnan(soften(attention_s8_kernels(isa), scores, values, 64, 64, -INFINITY, 0).scale));
    EXPECT_FALSE(std::isnan(soften(attention_s8_kernels(isa), scores, values, 64, 3, -INFINITY, 0).scale));
    values[3] = 0.5F;
    scores[5] = NAN;
    const Softened got = soften(attention_s8_kernels(isa), scores, values, 64, 64, -INFINITY, 0);
    EXPECT_TRUE(std::isnan(got.sum) || std::isnan(got.scale));
  }
}

// The bits of every version, with the largest operands at the largest size too.
TEST(AttentionS8, SumsAreExact) {
  for (const Isa isa : usable_isas())
    for (int n_rows = 1; n_rows <= 6; ++n_rows)
      for (const int quads : {1, 5, 64})
        for (const bool extreme : {false, true}) {
          const bool has_low = n_rows != 2;
          const auto n = static_cast<std::size_t>(quads * 4);
          const std::size_t stride = n + 4;
          std::vector<std::uint8_t> high(6 * stride, 255);
          std::vector<std::uint8_t> low(6 * stride, 255);
          std::vector<std::int8_t> panel = random_codes(n * 64, 3);
          if (extreme) {
            for (std::size_t i = 0; i < panel.size(); ++i) panel[i] = i % 8 < 4 ? 127 : -127;
          } else {
            std::mt19937 engine(5);
            for (auto& x : high) x = static_cast<std::uint8_t>(engine());
            for (auto& x : low) x = static_cast<std::uint8_t>(engine());
          }
          const std::vector<float> weight_scale = random_floats(6, 8);
          const std::vector<float> rescale = random_floats(6, 9);
          const std::vector<float> start = random_floats(6 * 70, 10);
          const auto run = [&](const AttentionS8Kernels& kernels) {
            std::vector<float> y = start;
            kernels.accumulate({n_rows, quads, high.data(), has_low ? low.data() : nullptr,
                                static_cast<std::ptrdiff_t>(stride), panel.data(), weight_scale.data(),
                                rescale.data(), y.data(), 70});
            return y;
          };
          const auto expected = run(kAttentionS8Scalar);
          const auto got = run(attention_s8_kernels(isa));
          for (std::size_t i = 0; i < got.size(); ++i)
            ASSERT_NEAR(got[i], expected[i],
                        1e-6F * std::fabs(expected[i]) + 1e-6F * std::fabs(start[i]) + 1e-30F)
                << to_string(isa) << " rows " << n_rows << " quads " << quads << " at " << i;
        }
}

// Many rows over tiles, their weights up to a guard page; what rows do not use of theirs is zero.
void expect_exact_sums(const AttentionS8TileKernels& tiles) {
  for (const int n_rows : {1, 6, 15, 16, 17, 31, 32})
    for (const int quads : {1, 5, 16, 17, 64})
      for (const bool has_low : {false, true}) {
        const std::size_t n = up(4 * quads, 64);
        const std::size_t n_stored = up(n_rows, kTileHeight);
        GuardedBytes high(n_stored * n), low(n_stored * n), values(n * 64);
        std::mt19937 engine(5);
        for (std::size_t i = 0; i < n_stored * n; ++i) {
          const bool used = i % n < static_cast<std::size_t>(4 * quads);
          high.data()[i] = used ? static_cast<std::uint8_t>(n_rows == 31 ? 255U : engine()) : std::uint8_t{0};
          low.data()[i] = used ? static_cast<std::uint8_t>(n_rows == 31 ? 255U : engine()) : std::uint8_t{0};
        }
        for (std::size_t i = 0; i < n * 64; ++i)
          values.data()[i] = static_cast<std::uint8_t>(n_rows == 31 ? 127U : engine() % 255 + 129);
        const auto count = static_cast<std::size_t>(n_rows);
        const std::vector<float> weight_scale = random_floats(count, 8);
        const std::vector<float> rescale = random_floats(count, 9);
        const std::vector<float> start = random_floats(count * 70, 10);
        const auto run = [&](void (*accumulate)(const S8AccumulateArgs&)) {
          std::vector<float> y = start;
          accumulate({n_rows, quads, high.data(), has_low ? low.data() : nullptr,
                      static_cast<std::ptrdiff_t>(n), reinterpret_cast<const std::int8_t*>(values.data()),
                      weight_scale.data(), rescale.data(), y.data(), 70});
          return y;
        };
        const auto expected = run(kAttentionS8Scalar.accumulate);
        const TileScope scope(tiles.tiles);
        const auto got = run(tiles.accumulate);
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], expected[i],
                      1e-6F * std::fabs(expected[i]) + 1e-6F * std::fabs(start[i]) + 1e-30F)
              << tiles.name << " rows " << n_rows << " quads " << quads << " at " << i;
      }
}

TEST(AttentionS8, SumsOverEmulatedTilesAreExact) { expect_exact_sums(kAttentionS8EmulatedTiles); }

TEST(AttentionS8, SumsOverTheProcessorsTilesAreExact) {
  const AttentionS8TileKernels* tiles = attention_s8_tile_kernels(active_features());
  if (tiles == nullptr) GTEST_SKIP() << "amx_int8 did not run: its loops ran over emulated tiles only";
  expect_exact_sums(*tiles);
}

}  // namespace
}  // namespace triptych::kernels
