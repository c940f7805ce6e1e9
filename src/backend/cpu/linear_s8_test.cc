// 8-bit linears against the codec's own arithmetic, through the backend.
#include "backend/cpu/linear_s8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "backend/cpu/backend_test_util.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/exec_context.h"
#include "base/error.h"
#include "base/rng.h"
#include "tensor/convert.h"
#include "tensor/quant_codec.h"

namespace triptych {
namespace {

std::shared_ptr<Tensor> random_matrix(DType dtype, std::int64_t n, std::int64_t k, std::uint64_t seed) {
  Tensor values(DType::kF32, {n, k});
  Rng rng(seed);
  for (std::int64_t i = 0; i < n * k; ++i) values.view().f32()[i] = rng.uniform_f32() * 2 - 1;
  auto out = std::make_shared<Tensor>(dtype, Shape{n, k});
  convert(values, *out);
  return out;
}

WeightEntry entry(const std::shared_ptr<Tensor>& tensor, const char* name = "w") {
  return {name, tensor->view(), tensor, "test"};
}

LinearSpec spec_of(std::vector<WeightEntry> parts) {
  LinearSpec spec;
  spec.name = "layer";
  for (WeightEntry& part : parts) spec.add(std::move(part));
  spec.format = QuantFormat::parse("int8");
  return spec;
}

// One row of x to bytes, as kernels/gemm_s8 defines it.
std::vector<double> quantized_row(const float* x, std::int64_t k) {
  float largest = 0;
  for (std::int64_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(x[i]));
  std::vector<double> out(static_cast<std::size_t>(k));
  for (std::int64_t i = 0; i < k; ++i)
    out[static_cast<std::size_t>(i)] =
        std::nearbyint(x[i] * (127.0F / largest)) * static_cast<double>(largest / 127.0F);
  return out;
}

TEST(LinearS8, EqualsTheCodecsArithmetic) {
  const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (const auto& [m, k, n] :
         {std::array<std::int64_t, 3>{1, 64, 64}, {3, 70, 5}, {7, 33, 130}, {50, 260, 300}}) {
      const auto first = random_matrix(dtype, n, k, 1);
      const auto second = random_matrix(dtype, 9, k, 2);
      const auto weight = backend->prepare_linear(spec_of({entry(first), entry(second)}));
      ASSERT_EQ(weight->n_out(), n + 9);
      EXPECT_TRUE(weight->multiplies_int8());
      EXPECT_GE(weight->owned_bytes(), static_cast<std::size_t>((n + 9) * k));
      const auto x = random_matrix(DType::kF32, m, k, 3);
      Tensor y(DType::kF32, {m, n + 9});
      TensorView out = y.view();
      backend->linear(*weight, x->view(), {}, out);
      QuantFormat exact = QuantFormat::parse("int8:fp32");
      const Tensor a = dequantize(quantize(to_f32(first->view()), exact));
      const Tensor b = dequantize(quantize(to_f32(second->view()), exact));
      for (std::int64_t r = 0; r < m; ++r) {
        const std::vector<double> row = quantized_row(x->view().row(r).cf32(), k);
        for (std::int64_t c = 0; c < n + 9; ++c) {
          const float* w = c < n ? a.view().row(c).cf32() : b.view().row(c - n).cf32();
          double expected = 0, size = 0;
          for (std::int64_t i = 0; i < k; ++i) {
            expected += row[static_cast<std::size_t>(i)] * static_cast<double>(w[i]);
            size += std::abs(row[static_cast<std::size_t>(i)] * static_cast<double>(w[i]));
          }
          ASSERT_NEAR(y.view().row(r).cf32()[c], expected, size * 1e-6)
              << m << "x" << k << "x" << n << " at " << r << "," << c;
        }
      }
    }
}

TEST(LinearS8, SameBitsForAnyThreadsRowsAndInstructions) {
  const auto w = random_matrix(DType::kBF16, 700, 515, 1);
  const auto x = random_matrix(DType::kF32, 90, 515, 2);
  std::vector<float> first;
  for (const Isa isa : usable_isas()) {
    for (const int n_threads : {1, 2, 3}) {
      const auto backend = make_cpu_backend({.n_threads = n_threads, .pin = false, .isa = isa});
      const auto weight = backend->prepare_linear(spec_of({entry(w)}));
      Tensor y(DType::kF32, {90, 700});
      for (const std::int64_t step : {90, 7, 1}) {
        for (std::int64_t r = 0; r < 90; r += step) {
          const std::int64_t end = std::min<std::int64_t>(90, r + step);
          TensorView out = y.view().rows(r, end);
          backend->linear(*weight, x->view().rows(r, end), {}, out);
        }
        const std::vector<float> now(y.view().cf32(), y.view().cf32() + 90 * 700);
        if (first.empty()) first = now;
        ASSERT_EQ(now, first) << to_string(isa) << ", " << n_threads << " threads, " << step
                              << " rows at once";
      }
    }
  }
}

// Scales are a row's own: what one token holds does not touch the others.
TEST(LinearS8, AnOutlierCostsItsOwnRowOnly) {
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  const auto w = random_matrix(DType::kF32, 64, 512, 1);
  auto x = random_matrix(DType::kF32, 16, 512, 2);
  LinearSpec as_stored = spec_of({entry(w)});
  as_stored.format.reset();
  const auto exact_w = backend->prepare_linear(as_stored);
  const auto weight = backend->prepare_linear(spec_of({entry(w)}));
  const auto product = [&](const LinearWeight& with) {
    Tensor y(DType::kF32, {16, 64});
    TensorView to = y.view();
    backend->linear(with, x->view(), {}, to);
    return y;
  };
  EXPECT_GT(sqnr_db(product(*exact_w), product(*weight)), 38.0);
  const Tensor before = product(*weight);
  x->view().row(3).f32()[100] = 100;
  const Tensor after = product(*weight);
  for (std::int64_t r = 0; r < 16; ++r)
    EXPECT_EQ(
        std::equal(before.view().row(r).cf32(), before.view().row(r).cf32() + 64, after.view().row(r).cf32()),
        r != 3);
}

TEST(LinearS8, BiasActivationAndResidualFollow) {
  const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
  const auto w = random_matrix(DType::kF32, 100, 64, 1);
  const auto bias = random_matrix(DType::kF32, 1, 100, 2);
  const auto x = random_matrix(DType::kF32, 5, 64, 3);
  const auto residual = random_matrix(DType::kF32, 5, 100, 4);
  LinearSpec spec = spec_of({entry(w)});
  spec.parts[0].bias = entry(bias, "b");
  spec.parts[0].bias.view = bias->view().row(0);
  const auto with = backend->prepare_linear(spec);
  const auto without = backend->prepare_linear(spec_of({entry(w)}));
  Tensor plain(DType::kF32, {5, 100}), y(DType::kF32, {5, 100});
  TensorView to_plain = plain.view(), to = y.view();
  backend->linear(*without, x->view(), {}, to_plain);
  backend->linear(*with, x->view(), {.activation = Activation::kRelu, .residual = residual->view()}, to);
  for (std::int64_t i = 0; i < 500; ++i)
    EXPECT_NEAR(
        to.cf32()[i],
        std::max(0.0F, to_plain.cf32()[i] + bias->view().cf32()[i % 100]) + residual->view().cf32()[i],
        1e-6F);
}

// Pixels are integers: 8-bit products add no error to that of the weights.
TEST(LinearS8, PixelsWithStaticParametersAreNotRounded) {
  const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
  constexpr std::int64_t kK = 300;
  constexpr std::int64_t kN = 70;
  const auto w = random_matrix(DType::kF32, kN, kK, 1);
  const auto bias = random_matrix(DType::kF32, 1, kN, 2);
  LinearSpec spec = spec_of({entry(w)});
  spec.parts[0].bias = {"bias", bias->view().reshape({kN}), bias, "test"};
  const auto weight = backend->prepare_linear(spec);
  const Tensor rounded = dequantize(quantize(*w, QuantFormat::parse("int8:channel:fp32")));
  const ActivationQuant x_quant{2.0F / 255, 1.0F / 255};  // (p / 255 - 1/2) / (1/2), p = code + 128
  Rng rng(3);
  for (const std::int64_t m : {1, 7, 40}) {
    Tensor x(DType::kF32, {m, kK});
    for (std::int64_t i = 0; i < m * kK; ++i) {
      const float pixel = static_cast<float>(rng.next_u64() % 256);
      x.f32()[i] = (pixel / 255.0F - 0.5F) / 0.5F;
    }
    Tensor y(DType::kF32, {m, kN});
    Tensor coarse(DType::kF32, {m, kN});
    TensorView view = y.view();
    backend->linear(*weight, x, {.activation = Activation::kNone, .residual = {}, .x_quant = x_quant}, view);
    view = coarse.view();
    backend->linear(*weight, x, {}, view);
    double error = 0;
    double error_without = 0;
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t j = 0; j < kN; ++j) {
        double sum = static_cast<double>(bias->view().f32()[j]);
        for (std::int64_t i = 0; i < kK; ++i)
          sum += static_cast<double>(x.f32()[r * kK + i]) * static_cast<double>(rounded.f32()[j * kK + i]);
        error = std::max(error, std::abs(static_cast<double>(y.f32()[r * kN + j]) - sum));
        error_without =
            std::max(error_without, std::abs(static_cast<double>(coarse.f32()[r * kN + j]) - sum));
      }
    EXPECT_LT(error, 3e-5) << m << " rows";  // float32 sums of 300 values
    EXPECT_GT(error_without, 1e-3) << "without the static parameters x was rounded";
  }
}

// A channel a hundred times larger than the rest, as language models have them, in some rows or in all: the
// outputs are as near as without it. Each kind of weight, few rows and many, gated or not.
TEST(LinearS8, AChannelAHundredTimesLargerDoesNotRuinItsRows) {
  const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
  constexpr std::int64_t kK = 512;
  constexpr std::int64_t kHalf = 128;
  for (const char* format : {"int8", "int4:g32", "int4:g128:asym"})
    for (const std::int64_t m : {1, 5, 40}) {
      LinearSpec spec = spec_of({entry(random_matrix(DType::kF32, kHalf, kK, 1), "a"),
                                 entry(random_matrix(DType::kF32, kHalf, kK, 2), "b")});
      spec.format = QuantFormat::parse(format);
      const auto weight = backend->prepare_linear(spec);
      // What the weight stands for: products with unit rows.
      Tensor units(DType::kF32, {kK, kK});
      std::fill(units.f32(), units.f32() + kK * kK, 0.0F);
      for (std::int64_t i = 0; i < kK; ++i) units.f32()[i * kK + i] = 127;
      Tensor columns(DType::kF32, {kK, 2 * kHalf});
      TensorView columns_view = columns.view();
      for (std::int64_t i = 0; i < kK; ++i) {  // one at a time: 4-bit panels are not requantized then
        TensorView row = columns_view.rows(i, i + 1);
        backend->linear(*weight, units.view().rows(i, i + 1), {}, row);
      }
      const auto x = random_matrix(DType::kF32, m, kK, 5);
      for (std::int64_t r = 0; r < m; ++r)
        for (const std::int64_t channel : {3, 77, 400})
          x->view().f32()[r * kK + channel] *= r % 3 == 1 ? 1 : 100;
      Tensor y(DType::kF32, {m, 2 * kHalf});
      TensorView view = y.view();
      backend->linear(*weight, x->view(), {}, view);
      Tensor gated(DType::kF32, {m, kHalf});
      TensorView gated_view = gated.view();
      ASSERT_TRUE(backend->gated_linear(*weight, x->view(), {.activation = Activation::kRelu, .residual = {}},
                                        gated_view));
      double error = 0;
      double rest = 0;  // of what the other channels contribute
      for (std::int64_t r = 0; r < m; ++r)
        for (std::int64_t j = 0; j < 2 * kHalf; ++j) {
          double sum = 0;
          double others = 0;
          for (std::int64_t i = 0; i < kK; ++i) {
            const double p = static_cast<double>(x->view().f32()[r * kK + i]) *
                             static_cast<double>(columns.f32()[i * 2 * kHalf + j]) / 127;
            sum += p;
            if (i != 3 && i != 77 && i != 400) others += p;
          }
          error += std::pow(static_cast<double>(y.f32()[r * 2 * kHalf + j]) - sum, 2);
          rest += others * others;
        }
      // Panels of 4 bits for many rows become 8-bit ones, whose rounding the large channels do multiply.
      const bool requantized = format[3] == '4' && m > 12;
      EXPECT_LT(error, rest * (requantized ? 3e-2 : 3e-4)) << format << ", " << m << " rows";
      for (std::int64_t r = 0; r < m; ++r)
        for (std::int64_t j = 0; j < kHalf; ++j) {
          const float* row = y.f32() + r * 2 * kHalf;
          const float expected = std::max(row[j], 0.0F) * row[kHalf + j];
          ASSERT_NEAR(gated.f32()[r * kHalf + j], expected, 1e-4F * std::fabs(expected) + 1e-3F);
        }
    }
}

// Bits of norm and product in one go, with outliers among the rows, against those of two steps.
TEST(LinearS8, NormedRowsEqualTwoSteps) {
  const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
  constexpr std::int64_t k = 192;
  const auto norm_weight = random_matrix(DType::kF32, 1, k, 7);
  const auto norm_bias = random_matrix(DType::kF32, 1, k, 8);
  for (const char* format : {"int8", "int4:g32", "int4:g128:asym", "nf4", "as stored"})
    for (const std::int64_t m : {1, 5, 70})
      for (const LinearInput::Norm norm : {LinearInput::Norm::kLayerNorm, LinearInput::Norm::kRmsNorm}) {
        LinearSpec spec = spec_of({entry(random_matrix(DType::kF32, 64, k, 1), "gate"),
                                   entry(random_matrix(DType::kF32, 64, k, 2), "up")});
        if (format == std::string("as stored")) {
          spec.format.reset();
        } else {
          spec.format = QuantFormat::parse(format);
        }
        const auto weight = backend->prepare_linear(spec);
        EXPECT_EQ(backend->norms_rows(*weight), spec.format.has_value());
        const auto x = random_matrix(DType::kF32, m, k, 5);
        x->view().row(m / 2).f32()[3] = 500.0F;
        const LinearInput input(
            x->view(), norm, norm_weight->view().row(0),
            norm == LinearInput::Norm::kLayerNorm ? norm_bias->view().row(0) : TensorView(), 1e-5F);
        const auto run = [&](ExecObserver* observer) {
          Arena arena;
          ExecContext cx(*backend, arena, observer);
          std::vector<float> out;
          const LinearInput gated = cx.gated_linear(Activation::kSilu, *weight, input);
          for (const TensorView& y : {cx.linear(*weight, input), gated.rows})
            out.insert(out.end(), y.cf32(), y.cf32() + y.numel());
          return out;
        };
        Onlooker onlooker;
        EXPECT_EQ(run(nullptr), run(&onlooker)) << format << ", " << m << " rows";
        EXPECT_EQ(onlooker.rows_seen, 2 * m);
      }
}

// A gate and its other half in one go, against the two steps; for the 4-bit weights too.
TEST(LinearS8, GatedProductsEqualTheirTwoSteps) {
  const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
  for (const char* format : {"int8", "int4:g32", "int4:g128:asym"})
    for (const bool with_bias : {false, true})
      for (const std::int64_t half : {64, 192, 320})
        for (const std::int64_t m : {1, 3, 8, 13, 70}) {
          const std::int64_t k = 160;
          LinearSpec spec = spec_of({entry(random_matrix(DType::kF32, half, k, 1), "gate"),
                                     entry(random_matrix(DType::kF32, half, k, 2), "up")});
          spec.format = QuantFormat::parse(format);
          if (with_bias)
            for (const std::size_t i : {0U, 1U}) {
              const auto bias = random_matrix(DType::kF32, 1, half, 3 + i);
              spec.parts[i].bias = {"bias", bias->view().reshape({half}), bias, "test"};
            }
          const auto weight = backend->prepare_linear(spec);
          const auto x = random_matrix(DType::kF32, m, k, 5);
          Tensor fused(DType::kF32, {m, half});
          TensorView y = fused.view();
          ASSERT_TRUE(backend->gated_linear(*weight, x->view(),
                                            {.activation = Activation::kSilu, .residual = {}}, y));
          Tensor both(DType::kF32, {m, 2 * half});
          TensorView products = both.view();
          backend->linear(*weight, x->view(), {}, products);
          Tensor expected(DType::kF32, {m, half});
          TensorView out = expected.view();
          backend->gated_activation(Activation::kSilu, products, out);
          for (std::int64_t i = 0; i < m * half; ++i) {
            const float e = expected.f32()[i];
            ASSERT_NEAR(fused.f32()[i], e, 1e-5F * std::fabs(e) + 1e-5F)
                << format << " rows " << m << " half " << half << " at " << i;
          }
        }
  // Halves that are not whole panels take the two steps.
  const auto odd = backend->prepare_linear(spec_of({entry(random_matrix(DType::kF32, 96, 64, 1), "gate"),
                                                    entry(random_matrix(DType::kF32, 96, 64, 2), "up")}));
  Tensor y(DType::kF32, {1, 96});
  TensorView view = y.view();
  EXPECT_FALSE(backend->gated_linear(*odd, random_matrix(DType::kF32, 1, 64, 5)->view(),
                                     {.activation = Activation::kSilu, .residual = {}}, view));
}

TEST(LinearS8, RefusalsNameTheTensor) {
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  const auto message = [&](LinearSpec spec) -> std::string {
    try {
      backend->prepare_linear(spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  auto bad = random_matrix(DType::kF32, 70, 8, 1);
  bad->view().row(69).f32()[3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(message(spec_of({entry(bad)})), testing::HasSubstr("layer: infinite or NaN weights"));
  LinearSpec other = spec_of({entry(random_matrix(DType::kF32, 4, 64, 1))});
  other.format = QuantFormat::parse("fp8_e4m3");
  EXPECT_THAT(message(other), testing::HasSubstr("not fp8_e4m3:channel"));
  EXPECT_THAT(message(spec_of({entry(random_matrix(DType::kF32, 4, 8, 1)),
                               entry(random_matrix(DType::kF32, 4, 9, 1), "up")})),
              testing::HasSubstr("up: expected [N, 8]"));
}

}  // namespace
}  // namespace triptych
