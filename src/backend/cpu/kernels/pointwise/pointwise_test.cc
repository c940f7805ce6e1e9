#include "backend/cpu/kernels/pointwise/pointwise.h"

#include <bit>
#include <cstdio>
#include <cstdlib>

#include "backend/cpu/kernels/test_util.h"

namespace triptych::kernels {
namespace {

constexpr Activation kFunctions[] = {Activation::kNone,      Activation::kGelu, Activation::kGeluTanh,
                                     Activation::kQuickGelu, Activation::kSilu, Activation::kRelu,
                                     Activation::kRelu2,     Activation::kExp};

double exact(Activation function, float value) {
  const long double x = static_cast<long double>(value);
  const auto logistic = [](long double u) { return 1.0L / (1.0L + std::exp(-u)); };
  switch (function) {
    case Activation::kNone:
      return static_cast<double>(x);
    case Activation::kGelu:
      return static_cast<double>(x * 0.5L * std::erfc(-x * 0.70710678118654752440L));
    case Activation::kGeluTanh:
      return static_cast<double>(x * logistic(2 * 0.79788456080286535588L * (x + 0.044715L * x * x * x)));
    case Activation::kQuickGelu:
      return static_cast<double>(x * logistic(static_cast<long double>(1.702F) * x));
    case Activation::kSilu:
      return static_cast<double>(x * logistic(x));
    case Activation::kRelu:
      return value < 0 ? 0 : static_cast<double>(x);
    case Activation::kRelu2:
      return value < 0 ? 0 : static_cast<double>(x * x);
    case Activation::kExp:
      return static_cast<double>(std::exp(x));
  }
  return 0;
}

// Largest error over a sweep of float bit patterns (every 1009th of one sign; in an emulator fewer, long
// double is software there) whose result is a normal number.
struct Worst {
  double ulp = 0;
  float at = 0;
};
Worst sweep(const PointwiseKernels& kernels, Activation function, bool negative, float smallest,
            float largest) {
  const std::uint32_t end = std::bit_cast<std::uint32_t>(largest);
  const std::uint32_t step = std::getenv("TRIPTYCH_EMULATED") != nullptr ? 65521 : 1009;
  std::vector<float> x;
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(smallest); bits <= end; bits += step)
    x.push_back(std::bit_cast<float>(bits | (negative ? 0x80000000U : 0U)));
  std::vector<float> y(x.size());
  kernels.epilogue({function, static_cast<std::ptrdiff_t>(x.size()), x.data(), nullptr, nullptr, y.data()});
  Worst worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(function, x[i]);
    if (std::fabs(expected) < 0x1p-126 || std::fabs(expected) > 0x1.fffffep127) continue;
    const double error = ulp_error(y[i], expected);
    if (!(error <= worst.ulp)) worst = {error, x[i]};
  }
  return worst;
}

struct Bound {
  Activation function;
  const char* name;
  double max_ulp;           // for x >= -limit
  double max_ulp_negative;  // for every x
  float limit;
};

TEST(Pointwise, LeanVersionsKeepTheirBounds) {
  std::vector<float> x;
  for (float v = -80.0F; v < 80.0F; v += 0.00317F) x.push_back(v);
  for (const float v : {0.0F, -0.0F, 1e-30F, -1e-30F, 1e30F, 3e38F}) x.push_back(v);
  for (const Isa isa : usable_isas())
    for (const Activation function : {Activation::kGeluTanh, Activation::kQuickGelu, Activation::kSilu}) {
      std::vector<float> y(x.size());
      pointwise_kernels(isa).epilogue(
          {function, static_cast<std::ptrdiff_t>(x.size()), x.data(), nullptr, nullptr, y.data(), true});
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double expected = exact(function, x[i]);
        const double magnitude = std::fabs(static_cast<double>(x[i]));
        double bound = 1e-6 * (1 + magnitude);
        if (x[i] < 0 && std::fabs(expected) > 1e-34) bound = std::min(bound, 2e-5 * std::fabs(expected));
        ASSERT_NEAR(static_cast<double>(y[i]), expected, bound)
            << pointwise_kernels(isa).name << " function " << static_cast<int>(function) << " of " << x[i];
      }
      float ends[] = {INFINITY, NAN};
      pointwise_kernels(isa).epilogue({function, 2, ends, nullptr, nullptr, ends, true});
      EXPECT_EQ(ends[0], INFINITY);
      EXPECT_TRUE(std::isnan(ends[1]));
    }
}

// The statement of accuracy: largest error in units in the last place against the formula in long double. Far
// below zero, where a result is under 1e-18 of its argument, e^x leaves the normal numbers or its argument's
// rounding counts: the second bound.
TEST(Pointwise, ErrorsOverADenseSweep) {
  const Bound bounds[] = {
      {Activation::kExp, "exp", 1.0, 1.0, 87.3F},
      {Activation::kGelu, "gelu", 3.4, 7.6, 5.0F},
      {Activation::kGeluTanh, "gelu_tanh", 3.0, 50.0, 6.0F},
      {Activation::kQuickGelu, "quick_gelu", 3.0, 30.0, 50.0F},
      {Activation::kSilu, "silu", 3.0, 50.0, 87.0F},
  };
  const PointwiseKernels* last = nullptr;
  for (const Isa isa : usable_isas()) {
    const PointwiseKernels& kernels = pointwise_kernels(isa);
    if (&kernels == last) continue;
    last = &kernels;
    for (const Bound& b : bounds) {
      const Worst positive = sweep(kernels, b.function, false, 1e-30F, 88.7F);
      const Worst near = sweep(kernels, b.function, true, 1e-30F, b.limit);
      const Worst far = sweep(kernels, b.function, true, 1e-30F, 104.0F);
      std::printf("%-8s %-10s max ulp: x >= 0 %.2f (at %g), x >= -%g %.2f (at %g), all %.2f (at %g)\n",
                  kernels.name, b.name, positive.ulp, static_cast<double>(positive.at),
                  static_cast<double>(b.limit), near.ulp, static_cast<double>(near.at), far.ulp,
                  static_cast<double>(far.at));
      EXPECT_LE(positive.ulp, b.max_ulp) << kernels.name << " " << b.name;
      EXPECT_LE(near.ulp, b.max_ulp) << kernels.name << " " << b.name;
      EXPECT_LE(far.ulp, b.max_ulp_negative) << kernels.name << " " << b.name;
    }
  }
}

TEST(Pointwise, ExpAtTheEdges) {
  const std::vector<float> x = {0.0F,   -0.0F,   88.72283F, 88.72284F, 89.5F,  1e30F,     INFINITY, -87.4F,
                                -90.0F, -103.9F, -104.0F,   -110.0F,   -1e30F, -INFINITY, NAN,      1e-40F};
  for (const Isa isa : usable_isas()) {
    std::vector<float> y(x.size());
    pointwise_kernels(isa).epilogue(
        {Activation::kExp, static_cast<std::ptrdiff_t>(x.size()), x.data(), nullptr, nullptr, y.data()});
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_LE(ulp_error(y[i], std::exp(static_cast<double>(x[i]))), 1.1)
          << pointwise_kernels(isa).name << " exp(" << x[i] << ") = " << y[i];
  }
}

TEST(Pointwise, InfinitiesAndNan) {
  const std::vector<float> x = {INFINITY, -INFINITY, NAN, 1e30F, -1e30F};
  for (const Isa isa : usable_isas()) {
    for (const Activation f : kFunctions) {
      std::vector<float> y(x.size());
      std::vector<float> expected(x.size());
      const std::ptrdiff_t n = static_cast<std::ptrdiff_t>(x.size());
      pointwise_kernels(isa).epilogue({f, n, x.data(), nullptr, nullptr, y.data()});
      kPointwiseScalar.epilogue({f, n, x.data(), nullptr, nullptr, expected.data()});
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(expected[i])) {
          EXPECT_TRUE(std::isnan(y[i]))
              << pointwise_kernels(isa).name << " " << static_cast<int>(f) << " of " << x[i];
        } else {
          EXPECT_EQ(y[i], expected[i])
              << pointwise_kernels(isa).name << " " << static_cast<int>(f) << " of " << x[i];
        }
      }
    }
  }
}

void expect_close(const std::vector<float>& got, const std::vector<float>& expected, const char* what,
                  int n) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), static_cast<double>(expected[i]),
                8 * 0x1p-24 * (2 + std::fabs(static_cast<double>(expected[i]))))
        << what << " n=" << n << " i=" << i;
}

TEST(Pointwise, EverySizeMisalignedAndInPlace) {
  for (const Isa isa : usable_isas()) {
    const PointwiseKernels& k = pointwise_kernels(isa);
    for (const int lanes : {8, 16}) {
      for (const int n : sizes_around(lanes)) {
        const std::size_t size = static_cast<std::size_t>(n) + 2;
        const std::vector<float> a = random_floats(size, 1);
        const std::vector<float> b = random_floats(size, 2);
        const std::vector<float> c = random_floats(size, 3);
        for (const Activation f : kFunctions) {
          // One float at each end must stay.
          std::vector<float> got = a;
          std::vector<float> expected = a;
          k.epilogue({f, n, got.data() + 1, b.data() + 1, c.data() + 1, got.data() + 1});
          kPointwiseScalar.epilogue(
              {f, n, expected.data() + 1, b.data() + 1, c.data() + 1, expected.data() + 1});
          expect_close(got, expected, k.name, n);
          got = a;
          expected = a;
          k.gated({f, n, got.data() + 1, b.data() + 1, nullptr, nullptr, got.data() + 1});
          kPointwiseScalar.gated(
              {f, n, expected.data() + 1, b.data() + 1, nullptr, nullptr, expected.data() + 1});
          expect_close(got, expected, k.name, n);
        }
        std::vector<float> got = a;
        std::vector<float> expected = a;
        k.add(n, got.data() + 1, b.data() + 1, got.data() + 1);
        kPointwiseScalar.add(n, expected.data() + 1, b.data() + 1, expected.data() + 1);
        EXPECT_EQ(got, expected);
        k.scale(n, 0.37F, got.data() + 1, got.data() + 1);
        kPointwiseScalar.scale(n, 0.37F, expected.data() + 1, expected.data() + 1);
        EXPECT_EQ(got, expected);
        std::vector<float> turned = random_floats(2 * static_cast<std::size_t>(n) + 1, 4);
        std::vector<float> turned_expected = turned;
        k.rotate_half(n, b.data() + 1, c.data() + 1, turned.data());
        kPointwiseScalar.rotate_half(n, b.data() + 1, c.data() + 1, turned_expected.data());
        expect_close(turned, turned_expected, "rotate_half", n);
      }
    }
  }
}

// Int8 outputs are those of the floats the same kernel gives, rounded as the oracle rounds.
TEST(Pointwise, CodesOfAGrid) {
  constexpr float kStep = 0.0375F;
  constexpr float kOffset = 1.3F;  // stands for -3.5 .. 6.0625; what lies outside is cut off
  for (const Isa isa : usable_isas()) {
    const PointwiseKernels& k = pointwise_kernels(isa);
    for (const int n : sizes_around(16)) {
      const auto size = static_cast<std::size_t>(n);
      std::vector<float> a = random_floats(size, 1, 5.0F);
      if (n > 2) a[1] = kOffset + 2.5F * kStep;  // a tie
      const std::vector<float> b = random_floats(size, 2);
      for (const Activation f : kFunctions)
        for (const bool lean : {false, true})
          for (const bool is_gated : {false, true}) {
            std::vector<float> y(size);
            std::vector<std::int8_t> q(size + 2, 99);
            std::vector<std::int8_t> expected(size + 2, 99);
            float scale = kStep;
            Int8Output int8{q.data() + 1, 1.0F / kStep, kOffset, &scale};
            if (is_gated) {
              k.gated({f, n, a.data(), b.data(), b.data(), nullptr, y.data(), lean});
              k.gated({f, n, a.data(), b.data(), b.data(), nullptr, nullptr, lean, int8});
            } else {
              k.epilogue({f, n, a.data(), b.data(), nullptr, y.data(), lean});
              k.epilogue({f, n, a.data(), b.data(), nullptr, nullptr, lean, int8});
            }
            int8.q = expected.data() + 1;
            kPointwiseScalar.epilogue(
                {Activation::kNone, n, y.data(), nullptr, nullptr, nullptr, false, int8});
            ASSERT_EQ(q, expected) << k.name << " function " << static_cast<int>(f) << " n=" << n;
            EXPECT_EQ(scale, kStep);
          }
    }
  }
}

TEST(Pointwise, CodesTellOfInfinitiesAndNan) {
  for (const Isa isa : usable_isas())
    for (const float bad : {INFINITY, -INFINITY, static_cast<float>(NAN)})
      for (const std::size_t at : {std::size_t{0}, std::size_t{16}, std::size_t{36}}) {
        std::vector<float> x(37, 1.0F);
        std::vector<std::int8_t> q(x.size());
        float scale = 0.5F;
        const EpilogueArgs args{Activation::kNone, 37,      x.data(), nullptr,
                                nullptr,           nullptr, false,    {q.data(), 2, 0, &scale}};
        pointwise_kernels(isa).epilogue(args);
        EXPECT_EQ(scale, 0.5F);
        x[at] = bad;
        pointwise_kernels(isa).epilogue(args);
        EXPECT_TRUE(std::isnan(scale)) << pointwise_kernels(isa).name << " " << bad << " at " << at;
      }
}

}  // namespace
}  // namespace triptych::kernels
