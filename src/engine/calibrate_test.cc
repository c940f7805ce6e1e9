#include "engine/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/rng.h"

namespace triptych {
namespace {

struct Fixture {
  std::unique_ptr<Backend> backend = make_cpu_backend({1, false, std::nullopt});
  Tensor w{DType::kF32, {8, 4}};
  std::unique_ptr<LinearWeight> weight;
  Fixture() {
    LinearSpec spec;
    spec.name = "w";
    spec.add(WeightEntry{"w", w.view(), std::make_shared<Tensor>(Tensor::copy_of(w.view())), "test"});
    weight = backend->prepare_linear(spec);
  }
};

TEST(Calibrate, GridsReachFromTheSmallestToTheLargestInput) {
  const Fixture tower;
  const Fixture unseen;
  const Fixture language;
  InputRanges ranges;
  Tensor x(DType::kF32, {2, 4});
  const float values[2][8] = {{0, 1, -0.5F, 2, 0, 0, 0, 0}, {0.25F, 0, 0, 0, 0, 0, 4.6F, 0}};
  for (const auto& call : values) {
    std::copy(std::begin(call), std::end(call), x.view().f32());
    ranges.on_linear(*tower.weight, x.view());
    ranges.on_linear(*language.weight, x.view());
  }
  PartSizes sizes;
  sizes.linears.push_back({tower.weight.get(), "vision", "shown", {"a.weight"}});
  sizes.linears.push_back({unseen.weight.get(), "vision", "shown", {"b.weight"}});
  sizes.linears.push_back({language.weight.get(), "language", "shown", {"c.weight"}});
  sizes.linears.push_back(
      {tower.weight.get(), "vision", "shown", {"d.weight"}, {.role = LinearRole::kPixelInput}});
  const ActivationQuantMap grids = ranges.activation_quants(sizes);
  ASSERT_EQ(grids.size(), 1U);
  const ActivationQuant grid = grids.at({"a.weight"});
  EXPECT_NEAR(grid.step, 5.1F / 255, 1e-6F);
  EXPECT_NEAR(grid.offset - 128 * grid.step, -0.5F, 1e-5F);
  EXPECT_NEAR(grid.offset + 127 * grid.step, 4.6F, 1e-5F);
}

TEST(Calibrate, InputsThatNeverChangeHaveAStep) {
  const Fixture tower;
  for (const float value : {0.0F, -3.0F}) {
    InputRanges ranges;
    Tensor x(DType::kF32, {1, 4});
    std::fill_n(x.view().f32(), 4, value);
    ranges.on_linear(*tower.weight, x.view());
    PartSizes sizes;
    sizes.linears.push_back({tower.weight.get(), "vision", "", {"a"}});
    const ActivationQuant grid = ranges.activation_quants(sizes).at({"a"});
    EXPECT_GE(grid.step, std::numeric_limits<float>::min());
    EXPECT_TRUE(std::isfinite(1.0F / grid.step));
  }
}

// A few values far out are cut off where that errs less than a coarser grid for all others.
TEST(Calibrate, CutsOffWhatCostsLess) {
  constexpr std::int64_t k = 4, n = 50000;
  Tensor x(DType::kF32, {n, k});
  Rng rng(3);
  for (std::int64_t i = 0; i < n * k; ++i) x.view().f32()[i] = rng.uniform_f32() * 2 - 1;
  for (const float far : {1.5F, 30.0F}) {
    x.view().f32()[7] = far;
    const Fixture tower;
    InputRanges ranges;
    ranges.on_linear(*tower.weight, x.view());
    ranges.begin_histograms();
    ranges.on_linear(*tower.weight, x.view());
    PartSizes sizes;
    sizes.linears.push_back({tower.weight.get(), "vision", "", {"a"}});
    const ActivationQuant found = ranges.activation_quants(sizes).at({"a"});
    const auto error = [&](const ActivationQuant& grid) {
      double sum = 0;
      for (std::int64_t i = 0; i < n * k; ++i) {
        const float v = x.view().f32()[i];
        const float code = std::clamp(std::nearbyint((v - grid.offset) / grid.step), -128.0F, 127.0F);
        sum += std::pow(static_cast<double>(v - grid.offset - grid.step * code), 2);
      }
      return sum;
    };
    const auto between = [](float low, float high) {
      const float step = (high - low) / 255;
      return ActivationQuant{step, low + 128 * step};
    };
    double least = error(between(-1, far));
    for (float high = 0.9F; high < far; high += 0.05F) least = std::min(least, error(between(-1, high)));
    EXPECT_LT(error(found), 1.02 * least) << far;
    EXPECT_LT(error(found), 0.9 * error(between(-1, far))) << far;
  }
}

TEST(Calibrate, RefusesWhatIsNotFinite) {
  const Fixture tower;
  InputRanges ranges;
  Tensor x(DType::kF32, {1, 4});
  std::fill_n(x.view().f32(), 4, 1.0F);
  x.view().f32()[2] = INFINITY;
  EXPECT_THROW(ranges.on_linear(*tower.weight, x.view()), Error);
}

}  // namespace
}  // namespace triptych
