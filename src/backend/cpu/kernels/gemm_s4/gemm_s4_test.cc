#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"

#include <cstdint>
#include <memory>
#include <random>

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/test_util.h"
#include "base/half.h"

namespace triptych::kernels {
namespace {

// A panel of random codes, exactly as long as the layout says, so that a sanitizer sees a read beyond it.
// (Prefetches may go beyond.)
struct Panel {
  S4Layout layout;
  std::unique_ptr<std::uint8_t[]> bytes;

  Panel(const S4Layout& l, unsigned seed)
      : layout(l), bytes(new std::uint8_t[static_cast<std::size_t>(l.panel_bytes())]) {
    std::mt19937 engine(seed);
    std::uint8_t* at = bytes.get();
    for (std::ptrdiff_t g = 0; g < layout.n_groups(); ++g) {
      for (std::ptrdiff_t i = 0; i < layout.blocks(g) * 256; ++i) *at++ = static_cast<std::uint8_t>(engine());
      for (int c = 0; c < kS4PanelWidth; ++c) {
        const std::uint16_t half = f32_to_f16(static_cast<float>(engine() % 2000) * 1e-4F - 0.1F);
        std::memcpy(at, &half, 2);
        at += 2;
      }
      if (layout.asymmetric)
        for (int c = 0; c < kS4PanelWidth; ++c) *at++ = static_cast<std::uint8_t>(engine() % 16);
    }
  }
  const std::uint8_t* group(std::ptrdiff_t g) const { return bytes.get() + g * layout.group_bytes(0); }
  double weight(std::ptrdiff_t k, int c) const {
    const std::ptrdiff_t g = k / layout.group;
    const std::ptrdiff_t i = k % layout.group;
    const std::uint8_t byte = group(g)[(i / 8) * 256 + c * 4 + i % 4];
    const std::uint8_t* tail = group(g) + layout.blocks(g) * 256;
    std::uint16_t half;
    std::memcpy(&half, tail + 2 * c, 2);
    const int code = i % 8 < 4 ? byte & 15 : byte >> 4;
    return static_cast<double>(f16_to_f32(half)) * (code - (layout.asymmetric ? tail[128 + c] : 8));
  }
};

const S4Layout kLayouts[] = {{8, 8, false},    {5, 32, true},     {64, 32, false},   {100, 32, true},
                             {130, 64, true},  {256, 128, false}, {300, 300, false}, {77, 1000, true},
                             {516, 128, true}, {88, 64, true}};

TEST(GemmS4, RowsMatchDoublesAndEachOther) {
  for (const S4Layout& layout : kLayouts) {
    const Panel panel(layout, 5);
    for (int n_rows = 1; n_rows <= kS4MaxRows; ++n_rows) {
      const std::ptrdiff_t stride = layout.padded_k();
      std::vector<std::int8_t> q(static_cast<std::size_t>(n_rows * stride), 0);
      std::vector<std::int32_t> sums(static_cast<std::size_t>(n_rows * layout.n_groups()), 0);
      std::mt19937 engine(1);
      for (int r = 0; r < n_rows; ++r)
        for (std::ptrdiff_t i = 0; i < layout.k; ++i) {
          const int value = static_cast<int>(engine() % 255) - 127;
          q[static_cast<std::size_t>(r * stride + i)] = static_cast<std::int8_t>(value);
          sums[static_cast<std::size_t>(r * layout.n_groups() + i / layout.group)] += value;
        }
      const std::vector<float> scales = random_floats(static_cast<std::size_t>(n_rows), 9);
      const std::ptrdiff_t y_stride = kS4PanelWidth + 1;
      std::vector<float> expected;
      for (const Isa isa : usable_isas()) {
        const GemmS4Kernels& kernels = gemm_s4_kernels(isa);
        if (n_rows > kernels.max_rows) continue;
        std::vector<float> y(static_cast<std::size_t>(n_rows * y_stride), -3.0F);
        kernels.rows({layout, n_rows, q.data(), stride, sums.data(), scales.data(), panel.bytes.get(),
                      y.data(), y_stride});
        if (expected.empty()) {
          expected = y;
          for (int r = 0; r < n_rows; ++r)
            for (int c = 0; c < kS4PanelWidth; ++c) {
              double sum = 0, size = 0;
              for (std::ptrdiff_t i = 0; i < layout.k; ++i) {
                const double product = panel.weight(i, c) * q[static_cast<std::size_t>(r * stride + i)];
                sum += product;
                size += std::abs(product);
              }
              const double scale = static_cast<double>(scales[static_cast<std::size_t>(r)]);
              ASSERT_NEAR(y[static_cast<std::size_t>(r * y_stride + c)], sum * scale,
                          size * std::abs(scale) * 3e-6 + 1e-30)
                  << "k=" << layout.k << " rows=" << n_rows << " r=" << r << " c=" << c;
            }
          for (int r = 0; r < n_rows; ++r)
            ASSERT_EQ(y[static_cast<std::size_t>(r * y_stride + kS4PanelWidth)], -3.0F);
        }
        ASSERT_EQ(y, expected) << kernels.name << " k=" << layout.k << " rows=" << n_rows;
      }
    }
  }
}

// The largest sums there can be: every code and byte at its end, one group of the longest K.
TEST(GemmS4, ExtremesDoNotOverflow) {
  const S4Layout layout{kS4MaxK, kS4MaxK, true};
  for (const int zero : {0, 15}) {
    Panel panel(layout, 1);
    std::uint8_t* at = panel.bytes.get();
    const std::ptrdiff_t n_codes = layout.blocks(0) * 256;
    std::memset(at, zero == 0 ? 0xFF : 0, static_cast<std::size_t>(n_codes));
    const std::uint16_t one = f32_to_f16(1.0F);
    for (int c = 0; c < kS4PanelWidth; ++c) std::memcpy(at + n_codes + 2 * c, &one, 2);
    std::memset(at + n_codes + 2 * kS4PanelWidth, zero, kS4PanelWidth);
    for (const int sign : {1, -1}) {
      const std::vector<std::int8_t> q(static_cast<std::size_t>(kS4MaxK),
                                       static_cast<std::int8_t>(sign * 127));
      const auto sum = static_cast<std::int32_t>(sign * 127 * kS4MaxK);
      const float row_scale = 1;
      for (const Isa isa : usable_isas()) {
        std::vector<float> y(kS4PanelWidth);
        gemm_s4_kernels(isa).rows(
            {layout, 1, q.data(), kS4MaxK, &sum, &row_scale, panel.bytes.get(), y.data(), kS4PanelWidth});
        for (const float value : y)
          ASSERT_EQ(value,
                    static_cast<float>(sign * (zero == 0 ? 15 : -15)) * 127.0F * static_cast<float>(kS4MaxK))
              << gemm_s4_kernels(isa).name << " zero=" << zero;
      }
    }
  }
}

TEST(GemmS4, RequantizedWeightsAreWithinHalfAStep) {
  for (const S4Layout& layout : kLayouts) {
    const Panel panel(layout, 6);
    std::vector<float> column_scale(kS4PanelWidth, 0.0F);
    for (int c = 1; c < kS4PanelWidth; ++c)  // the first stays zero
      for (std::ptrdiff_t i = 0; i < layout.padded_k(); ++i)
        if (i / layout.group < layout.n_groups())
          column_scale[static_cast<std::size_t>(c)] =
              std::max(column_scale[static_cast<std::size_t>(c)],
                       static_cast<float>(std::abs(panel.weight(i, c))) / 127);
    const auto size = static_cast<std::size_t>(layout.padded_k() / 4 * 256);
    std::vector<std::uint8_t> expected;
    for (const Isa isa : usable_isas()) {
      const GemmS4Kernels& kernels = gemm_s4_kernels(isa);
      std::vector<std::uint8_t> out(size + 1, 7);
      kernels.requantize({layout, panel.bytes.get(), column_scale.data(), out.data()});
      ASSERT_EQ(out[size], 7);
      if (expected.empty()) {
        expected = out;
        for (int c = 0; c < kS4PanelWidth; ++c)
          for (std::ptrdiff_t i = 0; i < layout.k; ++i) {
            const double scale = static_cast<double>(column_scale[static_cast<std::size_t>(c)]);
            const int code = out[static_cast<std::size_t>((i / 4) * 256 + c * 4 + i % 4)] - 128;
            ASSERT_LE(std::abs(code), 127);
            ASSERT_NEAR(code * scale, c == 0 ? 0 : panel.weight(i, c), scale * 0.5001)
                << "k=" << layout.k << " i=" << i;
          }
      }
      ASSERT_EQ(out, expected) << kernels.name << " k=" << layout.k;
      if (!kernels.makes_tiles) continue;
      // The same in tile order, and zeros where the last step holds nothing.
      const std::ptrdiff_t quads = layout.padded_k() / 4;
      std::vector<std::uint8_t> tiles(static_cast<std::size_t>(s8_tile_steps(quads) * kS8PanelStep_bytes + 1),
                                      7);
      kernels.requantize({layout, panel.bytes.get(), column_scale.data(), tiles.data(), true});
      ASSERT_EQ(tiles.back(), 7);
      std::vector<std::uint8_t> moved(tiles.size(), 0);
      moved.back() = 7;
      for (std::ptrdiff_t i = 0; i < quads; ++i)
        for (std::ptrdiff_t c = 0; c < kS4PanelWidth; ++c) {
          const std::ptrdiff_t row = i % 16 + (i / 16 == quads / 16 ? s8_tile_gap(quads) / 4 : 0);
          std::memcpy(moved.data() + i / 16 * kS8PanelStep_bytes + c / 16 * kTile_bytes +
                          row * kTileRow_bytes + c % 16 * 4,
                      out.data() + (i * kS4PanelWidth + c) * 4, 4);
        }
      ASSERT_EQ(tiles, moved) << kernels.name << " k=" << layout.k;
    }
  }
}

}  // namespace
}  // namespace triptych::kernels
