#include "backend/cpu/kernels/norm/norm.h"

#include "backend/cpu/kernels/test_util.h"

namespace triptych::kernels {
namespace {

// The statistics have a relative error of a few eps (partial sums of up to n / 64 terms), each element three
// more roundings.
void check(const NormKernels& norm, int n, float offset, float sigma) {
  std::vector<float> x = random_floats(static_cast<std::size_t>(n) + 1, 1, sigma);
  for (float& v : x) v += offset;
  const std::vector<float> weight = random_floats(static_cast<std::size_t>(n) + 1, 2);
  const std::vector<float> bias = random_floats(static_cast<std::size_t>(n) + 1, 3);
  std::vector<float> y(static_cast<std::size_t>(n) + 2, -77.0F);
  std::vector<float> expected(static_cast<std::size_t>(n) + 2, -77.0F);
  const auto compare = [&](const char* what, double slack) {
    for (int i = 0; i < n; ++i) {
      const double e = static_cast<double>(expected[static_cast<std::size_t>(i) + 1]);
      ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(i) + 1]), e,
                  16 * 0x1p-24 * (std::fabs(e) + slack))
          << norm.name << " " << what << " n=" << n << " i=" << i << " offset=" << offset;
    }
    ASSERT_EQ(y[static_cast<std::size_t>(n) + 1], -77.0F) << "wrote behind the end";
    ASSERT_EQ(y[0], -77.0F) << "wrote before the start";
  };
  // Subtracting a mean far from zero costs what the float x itself cannot hold: offset / sigma times eps.
  const double slack = 4 + 4 * std::fabs(static_cast<double>(offset / sigma));
  kNormScalar.layer_norm(n, x.data() + 1, weight.data() + 1, bias.data() + 1, 1e-5F, expected.data() + 1);
  norm.layer_norm(n, x.data() + 1, weight.data() + 1, bias.data() + 1, 1e-5F, y.data() + 1);
  compare("layer_norm", slack);
  kNormScalar.layer_norm(n, x.data() + 1, nullptr, nullptr, 1e-5F, expected.data() + 1);
  norm.layer_norm(n, x.data() + 1, nullptr, nullptr, 1e-5F, y.data() + 1);
  compare("layer_norm without weights", slack);
  kNormScalar.rms_norm(n, x.data() + 1, weight.data() + 1, 1e-6F, expected.data() + 1);
  norm.rms_norm(n, x.data() + 1, weight.data() + 1, 1e-6F, y.data() + 1);
  compare("rms_norm", 0);
}

TEST(Norm, MatchesTheOracle) {
  for (const Isa isa : usable_isas()) {
    for (const int lanes : {8, 16, 64})
      for (const int n : sizes_around(lanes)) check(norm_kernels(isa), n, 0.0F, 1.0F);
    for (const int n : {1024, 4096, 11008}) {
      check(norm_kernels(isa), n, 0.0F, 1.0F);
      check(norm_kernels(isa), n, 0.0F, 1e-4F);
      check(norm_kernels(isa), n, 300.0F, 1.0F);
    }
  }
}

TEST(Norm, MayWriteOverItsInput) {
  for (const Isa isa : usable_isas()) {
    const std::vector<float> x = random_floats(77, 1);
    const std::vector<float> weight = random_floats(77, 2);
    std::vector<float> apart(77);
    std::vector<float> in_place = x;
    norm_kernels(isa).rms_norm(77, x.data(), weight.data(), 1e-6F, apart.data());
    norm_kernels(isa).rms_norm(77, in_place.data(), weight.data(), 1e-6F, in_place.data());
    EXPECT_EQ(apart, in_place);
    in_place = x;
    norm_kernels(isa).layer_norm(77, x.data(), weight.data(), x.data(), 1e-6F, apart.data());
    norm_kernels(isa).layer_norm(77, in_place.data(), weight.data(), x.data(), 1e-6F, in_place.data());
    EXPECT_EQ(apart, in_place);
  }
}

TEST(Norm, ConstantRowGivesTheBias) {
  for (const Isa isa : usable_isas()) {
    const std::vector<float> x(100, 3.0F);
    const std::vector<float> bias = random_floats(100, 1);
    std::vector<float> y(100);
    norm_kernels(isa).layer_norm(100, x.data(), nullptr, bias.data(), 1e-5F, y.data());
    EXPECT_EQ(y, bias);
  }
}

}  // namespace
}  // namespace triptych::kernels
