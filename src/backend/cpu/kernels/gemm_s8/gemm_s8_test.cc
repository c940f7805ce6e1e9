#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>

#include "backend/cpu/kernels/test_util.h"
#include "backend/cpu/kernels/tiles/tile_scope.h"

namespace triptych::kernels {
namespace {

std::vector<std::int8_t> random_codes(std::size_t n, unsigned seed, int largest) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> pick(-largest, largest);
  std::vector<std::int8_t> out(n);
  for (std::int8_t& q : out) q = static_cast<std::int8_t>(pick(engine));
  return out;
}

// Of every instruction set in use, and those of tiles: emulated everywhere, of the processor where it has
// any.
std::vector<const GemmS8Kernels*> all_sets() {
  std::vector<const GemmS8Kernels*> out;
  for (const Isa isa : usable_isas()) out.push_back(&gemm_s8_kernels(isa));
  out.push_back(&kGemmS8EmulatedTiles);
  if (const GemmS8Kernels* tiles = gemm_s8_tile_kernels(active_features())) out.push_back(tiles);
  return out;
}

// So that a log tells what was tested: a set that is not there must not look like one that passed.
TEST(GemmS8, SetsOfThisMachine) {
  std::string names;
  for (const GemmS8Kernels* set : all_sets())
    if (names.find(set->name) == std::string::npos) names.append(" ").append(set->name);
  std::printf("gemm_s8 is tested with:%s\n", names.c_str());
  if (gemm_s8_tile_kernels(active_features()) == nullptr)
    GTEST_SKIP() << "amx_int8 did not run: its loops ran over emulated tiles only";
}

struct Quantized {
  std::vector<std::int8_t> q;
  float scale = -1;
  std::int32_t sum = -1;
  std::int32_t square_sum = -1;
};

Quantized quantize_with(const GemmS8Kernels& kernels, const std::vector<float>& x) {
  const auto k = static_cast<std::ptrdiff_t>(x.size());
  Quantized out;
  out.q.assign(static_cast<std::size_t>(4 * s8_quads(k)), 99);
  // Exactly as long as the row, so that a sanitizer sees a read beyond it.
  const std::unique_ptr<float[]> exact(new float[x.size()]);
  std::copy(x.begin(), x.end(), exact.get());
  kernels.quantize({k, exact.get(), out.q.data(), &out.scale, &out.sum, &out.square_sum});
  Quantized again = out;
  kernels.quantize({k, exact.get(), again.q.data(), &again.scale, &again.sum});
  EXPECT_EQ(again.q, out.q);
  EXPECT_EQ(again.sum, out.sum);
  return out;
}

TEST(GemmS8, QuantizeIsTheSameEverywhere) {
  for (const GemmS8Kernels* set : all_sets()) {
    const GemmS8Kernels& kernels = *set;
    for (const int k : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 1000, 4097}) {
      for (const float sigma : {1e-37F, 1e-20F, 1.0F, 1e30F}) {
        const std::vector<float> x =
            random_floats(static_cast<std::size_t>(k), static_cast<unsigned>(k), sigma);
        const Quantized expected = quantize_with(kGemmS8Scalar, x);
        const Quantized got = quantize_with(kernels, x);
        ASSERT_EQ(got.q, expected.q) << kernels.name << " k=" << k << " sigma=" << sigma;
        ASSERT_EQ(got.scale, expected.scale) << kernels.name << " k=" << k;
        ASSERT_EQ(got.sum, expected.sum) << kernels.name << " k=" << k;
        std::int64_t squares = 0;
        for (const std::int8_t q : got.q) squares += q * q;
        ASSERT_EQ(got.square_sum, squares) << kernels.name << " k=" << k;
        if (sigma < 1e-30F) continue;
        for (int i = 0; i < k; ++i)
          ASSERT_LE(std::abs(x[static_cast<std::size_t>(i)] -
                             got.scale * static_cast<float>(got.q[static_cast<std::size_t>(i)])),
                    got.scale * 0.50001F);
      }
    }
  }
}

TEST(GemmS8, SumsAreExactEverywhere) {
  for (const GemmS8Kernels* set : all_sets()) {
    const GemmS8Kernels& kernels = *set;
    for (const std::ptrdiff_t k : {1, 7, 8, 63, 64, 65, 130, 1000, 65536}) {
      for (const std::ptrdiff_t group : {std::ptrdiff_t{8}, std::ptrdiff_t{32}, std::ptrdiff_t{128}, k}) {
        // The largest int8 values at the largest k, and exactly as long as the row.
        const auto codes = random_codes(static_cast<std::size_t>(k), static_cast<unsigned>(k), 127);
        const std::unique_ptr<std::int8_t[]> q(new std::int8_t[codes.size()]);
        for (std::size_t i = 0; i < codes.size(); ++i) q[i] = k == kS8MaxK ? std::int8_t{-127} : codes[i];
        std::vector<std::int32_t> expected(static_cast<std::size_t>((k + group - 1) / group), 0);
        for (std::ptrdiff_t i = 0; i < k; ++i)
          expected[static_cast<std::size_t>(i / group)] += q[static_cast<std::size_t>(i)];
        std::vector<std::int32_t> got(expected.size(), 99);
        kernels.sums({k, q.get(), group, got.data()});
        ASSERT_EQ(got, expected) << kernels.name << " k=" << k << " group=" << group;
      }
    }
  }
}

TEST(GemmS8, SquaresDoNotOverflowAtTheLargestK) {
  for (const GemmS8Kernels* set : all_sets()) {
    const Quantized got = quantize_with(*set, std::vector<float>(static_cast<std::size_t>(kS8MaxK), -2.0F));
    EXPECT_EQ(got.square_sum, 127 * 127 * kS8MaxK) << set->name;
    EXPECT_EQ(got.sum, -127 * kS8MaxK) << set->name;
  }
}

TEST(GemmS8, ARowThatIsNotFiniteGivesNaN) {
  for (const GemmS8Kernels* set : all_sets()) {
    const GemmS8Kernels& kernels = *set;
    for (const float bad : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()})
      for (const std::size_t at : {std::size_t{0}, std::size_t{17}, std::size_t{36}}) {
        std::vector<float> x = random_floats(37, 1);
        x[at] = bad;
        const Quantized got = quantize_with(kernels, x);
        EXPECT_TRUE(std::isnan(got.scale)) << kernels.name;
        EXPECT_EQ(got.sum, 0);
        EXPECT_EQ(got.square_sum, 0);
        for (const std::int8_t q : got.q) EXPECT_EQ(q, 0);
      }
    const Quantized zero = quantize_with(kernels, std::vector<float>(21, 0.0F));
    EXPECT_EQ(zero.scale, 0.0F);
    EXPECT_EQ(zero.sum, 0);
  }
}

// Rows of signed codes as pack_s8_panel takes them.
void pack(int n_rows, std::ptrdiff_t k, const std::vector<std::int8_t>& w, std::uint8_t* panel) {
  const std::ptrdiff_t stride = 4 * s8_quads(k);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n_rows * stride), 128);
  for (int r = 0; r < n_rows; ++r)
    for (std::ptrdiff_t i = 0; i < k; ++i)
      codes[static_cast<std::size_t>(r * stride + i)] =
          static_cast<std::uint8_t>(w[static_cast<std::size_t>(r * k + i)] + 128);
  pack_s8_panel({n_rows, k, codes.data(), stride, panel});
}

struct Tile {
  std::ptrdiff_t k;
  int n_rows;
  std::vector<std::int8_t> q;
  std::vector<std::int8_t> w;  // [64][k]
  std::vector<std::uint8_t> panel;
  std::vector<float> row_scale, column_scale;
  std::vector<std::int32_t> row_sum;

  Tile(std::ptrdiff_t k_, int n_rows_, int n_columns, int largest)
      : k(k_),
        n_rows(n_rows_),
        q(random_codes(static_cast<std::size_t>(n_rows_ * stride()), 1, largest)),
        w(random_codes(static_cast<std::size_t>(n_columns * k_), 2, largest)),
        panel(static_cast<std::size_t>(s8_panel_bytes(k_))),
        row_scale(random_floats(static_cast<std::size_t>(n_rows_), 3)),
        column_scale(random_floats(kS8PanelWidth, 4)) {
    for (int r = 0; r < n_rows; ++r) {
      for (std::ptrdiff_t i = k; i < 4 * s8_quads(k); ++i) q[static_cast<std::size_t>(r * stride() + i)] = 0;
      std::int32_t sum = 0;
      for (std::ptrdiff_t i = 0; i < k; ++i) sum += q[static_cast<std::size_t>(r * stride() + i)];
      row_sum.push_back(sum);
    }
    pack(n_columns, k, w, panel.data());
  }
  std::ptrdiff_t stride() const { return 4 * s8_quads(k); }
  std::ptrdiff_t tile_stride() const { return s8_tile_steps(s8_quads(k)) * kTileRow_bytes; }
  std::int64_t exact(int r, int c) const {
    std::int64_t sum = 0;
    for (std::ptrdiff_t i = 0; i < k; ++i)
      sum += std::int64_t{q[static_cast<std::size_t>(r * stride() + i)]} *
             w[static_cast<std::size_t>(c * k + i)];
    return sum;
  }

  /// The rows as the kernels take them, and the panel, both up to a guard page: y = their products.
  void run(const GemmS8Kernels& kernels, float* y, std::ptrdiff_t y_stride,
           bool panel_in_tiles = false) const {
    const bool tiles = kernels.tiles != nullptr;
    const std::ptrdiff_t n_stored = tiles ? (n_rows + kTileHeight - 1) / kTileHeight * kTileHeight : n_rows;
    const std::ptrdiff_t row_bytes = tiles ? tile_stride() : stride();
    GuardedBytes rows(static_cast<std::size_t>(n_stored * row_bytes));
    GuardedBytes weights(panel.size());
    std::copy(panel.begin(), panel.end(), weights.data());
    for (int r = 0; r < n_rows; ++r)
      for (std::ptrdiff_t i = 0; i < stride(); ++i) {
        const std::ptrdiff_t at = r / kTileHeight * kTileHeight * row_bytes +
                                  r % kTileHeight * kTileRow_bytes + s8_tile_at(s8_quads(k), i);
        rows.data()[tiles ? at : r * stride() + i] =
            static_cast<std::uint8_t>(q[static_cast<std::size_t>(r * stride() + i)]);
      }
    const TileScope scope(kernels.tiles);
    kernels.tile({n_rows, s8_quads(k), reinterpret_cast<const std::int8_t*>(rows.data()), row_bytes,
                  weights.data(), row_scale.data(), row_sum.data(), column_scale.data(), y, y_stride,
                  panel_in_tiles});
  }
};

std::vector<int> heights(const GemmS8Kernels& kernels) {
  if (kernels.tiles != nullptr) return {1, 2, 8, 15, 16, 17, 31, 32};
  std::vector<int> out;
  for (int n = 1; n <= kernels.max_rows; ++n) out.push_back(n);
  return out;
}

// K with 0, 1, 2, 3, 4, 7, 9 and 15 quads beyond whole steps of a tile.
TEST(GemmS8, TileIsExact) {
  for (const GemmS8Kernels* set : all_sets()) {
    const GemmS8Kernels& kernels = *set;
    ASSERT_TRUE(kernels.tiles != nullptr || kernels.max_rows <= kS8MaxRows);
    for (const std::ptrdiff_t k : {1, 3, 4, 5, 60, 63, 64, 65, 72, 80, 100, 256, 284, 316, 588, 1027})
      for (const int n_rows : heights(kernels))
        for (const int n_columns : {1, 63, 64}) {
          const Tile tile(k, n_rows, n_columns, 127);
          const std::ptrdiff_t y_stride = kS8PanelWidth + 3;
          std::vector<float> y(static_cast<std::size_t>(n_rows * y_stride), -5.0F);
          tile.run(kernels, y.data(), y_stride);
          for (int r = 0; r < n_rows; ++r)
            for (int c = 0; c < y_stride; ++c) {
              const std::int64_t sum = c < n_columns ? tile.exact(r, c) : 0;
              const float expected =
                  c >= kS8PanelWidth
                      ? -5.0F
                      : static_cast<float>(sum) * (tile.row_scale[static_cast<std::size_t>(r)] *
                                                   tile.column_scale[static_cast<std::size_t>(c)]);
              ASSERT_EQ(y[static_cast<std::size_t>(r * y_stride + c)], expected)
                  << kernels.name << " k=" << k << " rows=" << n_rows << " r=" << r << " c=" << c;
            }
        }
  }
}

// A panel in tile order gives the same as the panel.
TEST(GemmS8, PanelsInTileOrderAreTheSameWeights) {
  for (const GemmS8Kernels* set : all_sets()) {
    if (set->tiles == nullptr) continue;
    for (const std::ptrdiff_t k : {8, 56, 64, 72, 128, 248, 588}) {
      const Tile tile(k, 32, kS8PanelWidth, 127);
      const std::ptrdiff_t quads = s8_quads(k);
      Tile moved = tile;
      moved.panel.assign(static_cast<std::size_t>(s8_tile_steps(quads) * kS8PanelStep_bytes), 77);
      for (std::ptrdiff_t i = 0; i < quads; ++i)
        for (std::ptrdiff_t c = 0; c < kS8PanelWidth; ++c) {
          const std::ptrdiff_t row = i % 16 + (i / 16 == quads / 16 ? s8_tile_gap(quads) / 4 : 0);
          std::memcpy(moved.panel.data() + i / 16 * kS8PanelStep_bytes + c / 16 * kTile_bytes +
                          row * kTileRow_bytes + c % 16 * 4,
                      tile.panel.data() + (i * kS8PanelWidth + c) * 4, 4);
        }
      std::vector<float> expected(32 * kS8PanelWidth), got(expected.size());
      tile.run(*set, expected.data(), kS8PanelWidth);
      moved.run(*set, got.data(), kS8PanelWidth, true);
      ASSERT_EQ(got, expected) << set->name << " k=" << k;
    }
  }
}

// The codes of a row, wherever they stand; what belongs to other rows of the block stays.
TEST(GemmS8, RowsAreQuantizedInTileOrder) {
  for (const GemmS8Kernels* set : all_sets()) {
    if (set->tiles == nullptr && std::string(set->name) != "avx512_vnni") continue;
    for (const std::ptrdiff_t k : {1, 4, 5, 60, 63, 64, 65, 100, 127, 128, 588, 1027})
      for (const std::ptrdiff_t quads : {s8_quads(k), (k + 7) / 8 * 2})
        for (const float sigma : {1.0F, 1e-37F, INFINITY}) {
          std::vector<float> x =
              random_floats(static_cast<std::size_t>(k), 5, std::isinf(sigma) ? 1.0F : sigma);
          if (std::isinf(sigma)) x[0] = sigma;
          const Quantized expected = quantize_with(*set, x);
          std::vector<std::int8_t> block(static_cast<std::size_t>(s8_tile_steps(quads) * kTile_bytes), 99);
          std::int8_t* row = block.data() + 3 * kTileRow_bytes;
          Quantized got;
          set->quantize({k, x.data(), row, &got.scale, &got.sum, &got.square_sum, quads});
          EXPECT_EQ(got.sum, expected.sum);
          EXPECT_EQ(got.square_sum, expected.square_sum);
          EXPECT_TRUE(got.scale == expected.scale || (std::isnan(got.scale) && std::isnan(expected.scale)));
          std::vector<std::int8_t> want(block.size(), 99);
          for (std::ptrdiff_t step = 0; step < s8_tile_steps(quads); ++step)
            std::fill_n(want.begin() + step * kTile_bytes + 3 * kTileRow_bytes, kTileRow_bytes,
                        std::int8_t{0});
          for (std::ptrdiff_t i = 0; i < k; ++i)
            want[static_cast<std::size_t>(3 * kTileRow_bytes + s8_tile_at(quads, i))] =
                expected.q[static_cast<std::size_t>(i)];
          ASSERT_EQ(block, want) << set->name << " k=" << k << " quads=" << quads;
        }
  }
}

// The largest sums there can be: every byte at its end, at the longest K.
TEST(GemmS8, ExtremesDoNotOverflow) {
  for (const GemmS8Kernels* set : all_sets()) {
    const GemmS8Kernels& kernels = *set;
    for (const int sign : {1, -1}) {
      Tile tile(kS8MaxK, 1, kS8PanelWidth, 1);
      std::fill(tile.q.begin(), tile.q.end(), static_cast<std::int8_t>(sign * 127));
      std::fill(tile.w.begin(), tile.w.end(), std::int8_t{127});
      tile.row_sum[0] = static_cast<std::int32_t>(sign * 127 * kS8MaxK);
      tile.row_scale[0] = 1;
      std::fill(tile.column_scale.begin(), tile.column_scale.end(), 1.0F);
      pack(kS8PanelWidth, tile.k, tile.w, tile.panel.data());
      std::vector<float> y(kS8PanelWidth);
      tile.run(kernels, y.data(), kS8PanelWidth);
      for (const float value : y)
        ASSERT_EQ(value, static_cast<float>(sign) * 127.0F * 127.0F * static_cast<float>(kS8MaxK))
            << kernels.name;
    }
  }
}

}  // namespace
}  // namespace triptych::kernels
