// The numerics check over real operations.
#include "backend/numerics_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/half.h"

namespace triptych {
namespace {

WeightEntry matrix(const char* name, const Tensor& t) {
  WeightEntry out;
  out.name = name;
  out.view = t.view();
  out.owner = t.buffer().owner();
  return out;
}

std::unique_ptr<Backend> backend_with(int n_threads) {
  CpuBackendOptions options;
  options.n_threads = n_threads;
  return make_cpu_backend(options);
}

template <typename Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Tensor halves(std::int64_t n, std::int64_t k, float value) {
  Tensor out(DType::kF16, {n, k});
  for (std::int64_t i = 0; i < n * k; ++i) out.view().as<std::uint16_t>()[i] = f32_to_f16(value);
  return out;
}

TEST(NumericsCheck, NamesTheFirstValueThatIsNotFinite) {
  const auto backend = backend_with(1);
  Arena arena;
  NumericsCheck check;
  ExecContext cx(*backend, arena, &check);
  Tensor x = Tensor::zeros(DType::kF32, {2, 8});
  cx.tap(x, "model.layers.{}", 2);
  x.view().row(1).f32()[5] = NAN;
  x.view().row(1).f32()[7] = INFINITY;
  EXPECT_EQ(error_of([&] { cx.tap(x, "model.layers.{}", 3); }),
            "model.layers.3: 2 of 16 values are not finite, the first nan at [1, 5]; everything up to "
            "model.layers.2 was finite");
  const Tensor w = halves(4, 8, 1.0F);
  const auto weight = backend->prepare_linear({.name = "w", .parts = {{matrix("w", w)}}});
  EXPECT_THAT(error_of([&] { cx.linear(*weight, x); }),
              testing::HasSubstr("input [2, 8] of product 1 [4 x 8] after model.layers.2: 2 of 16"));
  check.restart(nullptr);
  x.view().row(1).f32()[5] = 0;
  EXPECT_THAT(
      error_of([&] { check.check("pixels", x.view().cols(4, 8)); }),
      testing::HasSubstr("pixels: 1 of 8 values are not finite, the first infinity at [1, 3]; nothing"));
}

TEST(NumericsCheck, FiniteValuesPassAndReachTheNextObserver) {
  struct Next : ExecObserver {
    std::vector<std::string> names;
    int n_linears = 0;
    void on_tap(std::string_view name, const TensorView&) override { names.emplace_back(name); }
    void on_linear(const LinearWeight&, const TensorView&) override { ++n_linears; }
  } next;
  const auto backend = backend_with(1);
  Arena arena;
  NumericsCheck check(&next);
  ExecContext cx(*backend, arena, &check);
  Tensor x = Tensor::zeros(DType::kF32, {1, 8});
  x.view().f32()[0] = 3.4e38F;
  x.view().f32()[1] = 1e-42F;
  cx.tap(x, "a");
  const Tensor w = halves(4, 8, 0.0F);
  cx.linear(*backend->prepare_linear({.name = "w", .parts = {{matrix("w", w)}}}), x);
  EXPECT_EQ(next.names, std::vector<std::string>{"a"});
  EXPECT_EQ(next.n_linears, 1);
}

// Squares beyond what a 16-bit float holds (65504): activations are float32 whatever the weights are, as
// Fuyu's relu squared needs.
TEST(Numerics, SquaredReluBehindHalfWeightsDoesNotOverflow) {
  for (const int n_threads : {1, 2}) {
    const auto backend = backend_with(n_threads);
    for (const std::int64_t rows : {1, 40}) {
      Arena arena;
      NumericsCheck check;
      ExecContext cx(*backend, arena, &check);
      const Tensor up = halves(16, 64, 30.0F);
      const Tensor down = halves(4, 16, 100.0F);
      for (const char* format : {"", "int8", "int4:g32"}) {
        std::optional<QuantFormat> quantized;
        if (*format != 0) quantized = QuantFormat::parse(format);
        const auto first =
            backend->prepare_linear({.name = "up", .parts = {{matrix("up", up)}}, .format = quantized});
        const auto second =
            backend->prepare_linear({.name = "down", .parts = {{matrix("down", down)}}, .format = quantized});
        Tensor x(DType::kF32, {rows, 64});
        for (std::int64_t i = 0; i < rows * 64; ++i) x.view().f32()[i] = 1000.0F;
        const LinearInput h = cx.linear(*first, x, Activation::kRelu2);
        const double inner = 64 * 30.0 * 1000.0;  // 1.9e6; its square is 3.7e12
        EXPECT_NEAR(h.rows.cf32()[0], inner * inner, inner * inner * 0.02) << format;
        const TensorView y = cx.linear(*second, h);
        EXPECT_NEAR(y.cf32()[0], 1600 * inner * inner, 1600 * inner * inner * 0.04) << format;
      }
    }
  }
}

}  // namespace
}  // namespace triptych
