#include "backend/cpu/kernels/quantize_weight/quantize_weight.h"

#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "backend/cpu/kernels/test_util.h"

namespace triptych::kernels {
namespace {

TEST(QuantizeWeight, TheSameBitsEverywhere) {
  for (const Isa isa : usable_isas()) {
    const QuantizeWeightKernels& kernels = quantize_weight_kernels(isa);
    for (const int n : {1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 128, 1000, 4097}) {
      for (const float sigma : {1e-38F, 1e-20F, 1.0F, 1e30F}) {
        const std::vector<float> made =
            random_floats(static_cast<std::size_t>(n), static_cast<unsigned>(n), sigma);
        // Exactly as long as the group, so that a sanitizer sees a read beyond it.
        const std::unique_ptr<float[]> w(new float[made.size()]);
        std::copy(made.begin(), made.end(), w.get());
        const WeightRange expected = kQuantizeWeightScalar.range(n, w.get());
        const WeightRange got = kernels.range(n, w.get());
        ASSERT_EQ(got.low, expected.low) << kernels.name << " n=" << n;
        ASSERT_EQ(got.high, expected.high) << kernels.name << " n=" << n;
        ASSERT_TRUE(got.finite && expected.finite);
        // The first scale puts values on halves, where rounding has to go to the even neighbour.
        for (const float scale : {w[0] * 2, sigma / 3, -sigma / 5, sigma * 1e-6F}) {
          if (scale == 0) continue;
          for (const auto& [zero, low, high] : {std::array{8.0F, 0.0F, 15.0F}, std::array{0.0F, 0.0F, 15.0F},
                                                std::array{128.0F, 1.0F, 255.0F}}) {
            const auto size = static_cast<std::size_t>(n);
            std::vector<std::uint8_t> a(size + 1, 99), b(size + 1, 99);
            kQuantizeWeightScalar.codes({n, w.get(), scale, zero, low, high, a.data()});
            kernels.codes({n, w.get(), scale, zero, low, high, b.data()});
            ASSERT_EQ(a, b) << kernels.name << " n=" << n << " scale=" << scale;
            ASSERT_EQ(b[size], 99);
          }
        }
      }
    }
  }
}

TEST(QuantizeWeight, SeesWhatIsNotFinite) {
  for (const Isa isa : usable_isas())
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")})
      for (const std::size_t at : {0U, 7U, 8U, 20U}) {
        std::vector<float> w(21, 0.5F);
        EXPECT_TRUE(quantize_weight_kernels(isa).range(21, w.data()).finite);
        w[at] = bad;
        EXPECT_FALSE(quantize_weight_kernels(isa).range(21, w.data()).finite) << bad << " at " << at;
      }
}

}  // namespace
}  // namespace triptych::kernels
