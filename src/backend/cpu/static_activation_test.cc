// Linears with static activation quantization parameters, and linears that write int8 activations with them.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "backend/cpu/backend_test_util.h"
#include "backend/exec_context.h"
#include "base/error.h"
#include "tensor/packed_linear.h"
#include "tensor/quant_format.h"

namespace triptych {
namespace {

constexpr ActivationQuant kQuant{0.021F, 0.7F};  // -1.988 .. 3.367

struct Layer {
  std::int64_t n_out, n_in;
  const char* format = "int8";
  ActivationQuant x_quant = {};
  unsigned seed = 1;
  bool with_bias = true;
};

struct Made {
  std::shared_ptr<Tensor> w, bias;
  std::unique_ptr<LinearWeight> weight;
};

Made make(Backend& backend, const Layer& layer) {
  Made out;
  out.w = std::make_shared<Tensor>(random_tensor({layer.n_out, layer.n_in}, layer.seed, 0.2F));
  out.bias = std::make_shared<Tensor>(random_tensor({layer.n_out}, layer.seed + 1));
  LinearSpec spec;
  spec.name = "layer";
  spec.add(WeightEntry{"w", out.w->view(), out.w, "test"});
  if (layer.with_bias) spec.parts.back().bias = {"b", out.bias->view(), out.bias, "test"};
  if (layer.format != std::string("as stored")) spec.format = QuantFormat::parse(layer.format);
  spec.activation_quant = layer.x_quant;
  out.weight = backend.prepare_linear(spec);
  return out;
}

// x after rounding with the parameters.
float dequantized(float x) {
  const float rounded =
      std::clamp(std::nearbyint((x - kQuant.offset) * (1.0F / kQuant.step)), -128.0F, 127.0F);
  return kQuant.offset + kQuant.step * rounded;
}

std::vector<float> floats(const TensorView& y) {
  std::vector<float> out;
  for (std::int64_t t = 0; t < y.dim(0); ++t)
    out.insert(out.end(), y.row(t).cf32(), y.row(t).cf32() + y.dim(1));
  return out;
}

TEST(ActivationQuant, ProductsAreThoseOfRoundedInputs) {
  for (const Isa isa : usable_isas()) {
    const auto backend = make_cpu_backend({2, false, isa});
    for (const bool with_bias : {false, true})
      for (const std::int64_t k : {1, 66, 300})
        for (const std::int64_t m : {1, 3, 40}) {
          constexpr std::int64_t n = 130;
          const Made linear =
              make(*backend, {.n_out = n, .n_in = k, .x_quant = kQuant, .with_bias = with_bias});
          EXPECT_EQ(linear.weight->activation_quant(), kQuant);
          const Tensor x = random_tensor({m, k}, 9, 1.5F);
          Arena arena;
          ExecContext cx(*backend, arena);
          const TensorView y = cx.linear(*linear.weight, x);
          for (std::int64_t r = 0; r < m; ++r)
            for (std::int64_t j = 0; j < n; ++j) {
              float largest = 0;
              for (std::int64_t i = 0; i < k; ++i)
                largest = std::max(largest, std::abs(linear.w->f32()[j * k + i]));
              const float scale = largest / 127;
              double sum = with_bias ? static_cast<double>(linear.bias->f32()[j]) : 0.0;
              double size = std::abs(sum);
              for (std::int64_t i = 0; i < k; ++i) {
                const auto value = static_cast<double>(dequantized(x.view().cf32()[r * k + i]));
                const double w = std::nearbyint(static_cast<double>(linear.w->f32()[j * k + i] / scale)) *
                                 static_cast<double>(scale);
                sum += value * w;
                // Int8 values and offset are summed apart.
                size += (std::abs(value) + 2 * static_cast<double>(kQuant.offset)) * std::abs(w);
              }
              ASSERT_NEAR(static_cast<double>(y.row(r).cf32()[j]), sum, 1e-5 * size)
                  << to_string(isa) << " k=" << k << " row " << r << " column " << j;
            }
        }
  }
}

// One linear after another: int8 activations handed over, against float rows that the second rounds by
// itself.
TEST(ActivationQuant, Int8ActivationsGiveTheBitsOfRoundingLater) {
  for (const Isa isa : usable_isas())
    for (const int n_threads : {1, 2}) {
      const auto backend = make_cpu_backend({n_threads, false, isa});
      const Tensor norm_weight = random_tensor({96}, 5);
      const Tensor norm_bias = random_tensor({96}, 6);
      for (const char* format : {"int8", "int4:g32", "int8:g32", "as stored"})
        for (const std::int64_t width : {64, 130, 192})
          for (const std::int64_t m : {1, 7, 70}) {
            const Made first = make(*backend, {.n_out = width, .n_in = 96, .format = format});
            const Made gate_up = make(*backend, {.n_out = 2 * width, .n_in = 96, .format = format});
            const Made second = make(*backend, {.n_out = 80, .n_in = width, .x_quant = kQuant, .seed = 3});
            first.weight->set_reader(*second.weight);
            gate_up.weight->set_reader(*second.weight);
            const Tensor x = random_tensor({m, 96}, 4);
            const LinearInput input(x, LinearInput::Norm::kLayerNorm, norm_weight.view(), norm_bias.view(),
                                    1e-5F);
            const auto run = [&](ExecObserver* observer) {
              Arena arena;
              ExecContext cx(*backend, arena, observer);
              std::vector<float> out;
              for (const Activation act : {Activation::kNone, Activation::kQuickGelu, Activation::kGelu}) {
                const LinearInput f = cx.linear(*first.weight, input, act);
                EXPECT_EQ(f.is_int8(), observer == nullptr);
                const LinearInput g = cx.gated_linear(act, *gate_up.weight, input);
                for (const LinearInput& middle : {f, g}) {
                  const std::vector<float> y = floats(cx.linear(*second.weight, middle));
                  out.insert(out.end(), y.begin(), y.end());
                }
              }
              return out;
            };
            Onlooker onlooker;
            ASSERT_EQ(run(nullptr), run(&onlooker))
                << to_string(isa) << " " << format << " width " << width << ", " << m << " rows";
          }
    }
}

TEST(ActivationQuant, ARowThatIsNotFiniteStaysSo) {
  const auto backend = make_cpu_backend({2, false, std::nullopt});
  const Made first = make(*backend, {.n_out = 130, .n_in = 96});
  const Made second = make(*backend, {.n_out = 80, .n_in = 130, .x_quant = kQuant, .seed = 3});
  first.weight->set_reader(*second.weight);
  for (const float bad : {INFINITY, static_cast<float>(NAN)}) {
    Tensor x = random_tensor({9, 96}, 4);
    x.view().row(4).f32()[17] = bad;
    Arena arena;
    ExecContext cx(*backend, arena);
    const LinearInput f = cx.linear(*first.weight, x, Activation::kGelu);
    ASSERT_TRUE(f.is_int8());
    const TensorView y = cx.linear(*second.weight, f);
    for (std::int64_t r = 0; r < 9; ++r)
      for (std::int64_t j = 0; j < 80; ++j)
        EXPECT_EQ(std::isnan(y.row(r).cf32()[j]), r == 4) << r << " " << j;
  }
}

// As the backend stores them, and back.
TEST(ActivationQuant, StoredLinearsGiveTheSameBits) {
  const auto backend = make_cpu_backend({2, false, std::nullopt});
  const Made made = make(*backend, {.n_out = 130, .n_in = 70, .x_quant = kQuant});
  const Tensor x = random_tensor({9, 70}, 4);
  Arena arena;
  ExecContext cx(*backend, arena);
  const std::vector<float> expected = floats(cx.linear(*made.weight, x));
  const Made dynamic = make(*backend, {.n_out = 130, .n_in = 70});
  const std::vector<float> expected_dynamic = floats(cx.linear(*dynamic.weight, x));
  EXPECT_NE(expected, expected_dynamic);
  PackedLinear packed{QuantFormat::parse("int8"), 130, 70, made.weight->packed(), kQuant};
  LinearSpec spec;
  spec.name = "layer";
  spec.add(packed);
  EXPECT_EQ(floats(cx.linear(*backend->prepare_linear(spec), x)), expected);
  packed.activation_quant = {};  // not wanted
  spec.parts[0].source = packed;
  EXPECT_EQ(floats(cx.linear(*backend->prepare_linear(spec), x)), expected_dynamic);
  packed.activation_quant = kQuant;
  std::erase_if(packed.arrays, [](const PackedArray& array) { return array.name == "compensated_bias"; });
  spec.parts[0].source = packed;
  EXPECT_THROW(backend->prepare_linear(spec), Error);
}

TEST(ActivationQuant, Int8ActivationsNeedAReaderWithParameters) {
  const auto backend = make_cpu_backend({1, false, std::nullopt});
  const Made plain = make(*backend, {.n_out = 64, .n_in = 64});
  const Made quantized = make(*backend, {.n_out = 64, .n_in = 64, .x_quant = kQuant});
  const Tensor x = random_tensor({3, 64}, 4);
  Arena arena;
  ExecContext cx(*backend, arena);
  const auto product = [&]() -> LinearInput { return cx.linear(*plain.weight, x, Activation::kNone); };
  EXPECT_FALSE(product().is_int8()) << "nobody is known to read it";
  const Made next = make(*backend, {.n_out = 64, .n_in = 64});
  plain.weight->set_reader(*next.weight);
  EXPECT_FALSE(product().is_int8()) << "its reader has no parameters";
  plain.weight->set_reader(*quantized.weight);
  const LinearInput int8 = product();
  ASSERT_TRUE(int8.is_int8());
  EXPECT_THROW(cx.linear(*plain.weight, int8), Error);
  const Made narrow = make(*backend, {.n_out = 64, .n_in = 60, .x_quant = kQuant});
  plain.weight->set_reader(*narrow.weight);
  EXPECT_THROW(product(), Error) << "a reader of another width";
}

}  // namespace
}  // namespace triptych
