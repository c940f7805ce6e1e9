// 4-bit linears through the backend, against the codec's own arithmetic.
#include "backend/cpu/linear_s4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/half.h"
#include "base/rng.h"
#include "tensor/quant_codec.h"

namespace triptych {
namespace {

std::shared_ptr<Tensor> random_matrix(std::int64_t n, std::int64_t k, std::uint64_t seed) {
  auto out = std::make_shared<Tensor>(DType::kF32, Shape{n, k});
  Rng rng(seed);
  for (std::int64_t i = 0; i < n * k; ++i) out->view().f32()[i] = rng.uniform_f32() * 2 - 1;
  return out;
}

LinearSpec spec_of(const std::shared_ptr<Tensor>& w, const char* format) {
  LinearSpec spec;
  spec.name = "layer";
  spec.add(WeightEntry{"w", w->view(), w, "test"});
  if (format != nullptr) spec.format = QuantFormat::parse(format);
  return spec;
}

Tensor product(Backend& backend, const LinearWeight& w, const TensorView& x) {
  Tensor y(DType::kF32, {x.dim(0), w.n_out()});
  TensorView out = y.view();
  backend.linear(w, x, {}, out);
  return y;
}

// The product of what the codec says the weight is, with 8-bit rows of x.
Tensor expected_product(const TensorView& w, const TensorView& x, const char* format) {
  const Tensor values = dequantize(quantize(w, QuantFormat::parse(format)));
  Tensor y(DType::kF32, {x.dim(0), w.dim(0)});
  for (std::int64_t r = 0; r < x.dim(0); ++r) {
    const float* row = x.row(r).cf32();
    float largest = 0;
    for (std::int64_t i = 0; i < x.dim(1); ++i) largest = std::max(largest, std::abs(row[i]));
    for (std::int64_t c = 0; c < w.dim(0); ++c) {
      double sum = 0;
      for (std::int64_t i = 0; i < x.dim(1); ++i)
        sum +=
            std::nearbyint(row[i] * (127.0F / largest)) * static_cast<double>(values.view().row(c).cf32()[i]);
      y.view().row(r).f32()[c] = static_cast<float>(sum * static_cast<double>(largest / 127.0F));
    }
  }
  return y;
}

constexpr const char* kFormats[] = {"int4:g32:sym",
                                    "int4:g32:asym",
                                    "int4:g128:sym",
                                    "int4:g64:half",
                                    "int4:channel:absmax",
                                    "int4:channel:asym",
                                    "int4:g32:sym:bf16",
                                    "int4:g64:asym:bf16",
                                    "int4:g128:sym:two-level",
                                    "int4:g32:asym:two-level",
                                    "int4:g64:half:bf16:two-level"};

TEST(LinearS4, FewRowsAndExactGroupsEqualTheCodecsArithmetic) {
  for (const char* format : kFormats)
    for (const std::int64_t k : {40, 129, 300})
      for (const bool exact : {false, true}) {
        const auto backend = make_cpu_backend(
            {.n_threads = 2, .pin = false, .isa = std::nullopt, .policy = {.exact_groups = exact}});
        const auto w = random_matrix(150, k, 1);
        const auto x = random_matrix(exact ? 40 : 7, k, 2);
        const auto weight = backend->prepare_linear(spec_of(w, format));
        EXPECT_TRUE(weight->multiplies_int8());
        EXPECT_GT(
            sqnr_db(expected_product(w->view(), x->view(), format), product(*backend, *weight, x->view())),
            110.0)
            << format << " k=" << k << (exact ? " exact" : "");
      }
}

// 8-bit weights made of a panel add a noise some 20 dB below that of the 4 bits.
TEST(LinearS4, ManyRowsStayNearTheCodecsArithmetic) {
  const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
  for (const char* format : kFormats) {
    const auto w = random_matrix(300, 1024, 1);
    const auto x = random_matrix(40, 1024, 2);
    const auto weight = backend->prepare_linear(spec_of(w, format));
    const auto as_stored = backend->prepare_linear(spec_of(w, nullptr));
    const Tensor y = product(*backend, *weight, x->view());
    const double requantized = sqnr_db(expected_product(w->view(), x->view(), format), y);
    const double four_bits = sqnr_db(product(*backend, *as_stored, x->view()), y);
    EXPECT_GT(requantized, 36.0) << format;
    EXPECT_GT(requantized, four_bits + 12.0) << format;
  }
}

// What panels hold, element by element: the codec's codes, scales and zero points.
TEST(LinearS4, PanelsAreTheCodecs) {
  for (const char* name : kFormats)
    for (const std::int64_t k : {40, 129, 300})
      for (const bool with_extremes : {false, true}) {
        const auto w = random_matrix(70, k, 3);
        if (with_extremes) {  // ties of both signs, rows of nothing, a group of nothing, very unlike groups
          for (std::int64_t i = 0; i < k; ++i) {
            w->f32()[0 * k + i] = 0;
            w->f32()[1 * k + i] = i % 2 == 0 ? 1.0F : -1.0F;
            w->f32()[2 * k + i] = i % 2 == 0 ? -0.25F : 0.25F;
            w->f32()[3 * k + i] *= i < 32 ? 0.0F : 1.0F;
            w->f32()[4 * k + i] *= i < 32 ? 1e-3F : 1.0F;
            w->f32()[5 * k + i] = std::abs(w->f32()[5 * k + i]);
          }
        }
        const QuantFormat format = QuantFormat::parse(name);
        const QuantizedMatrix m = quantize(w->view(), format);
        const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
        const auto weight = backend->prepare_linear(spec_of(w, name));
        const std::vector<PackedArray> arrays = weight->packed();
        const float* factors = nullptr;
        for (const PackedArray& array : arrays)
          if (array.name == "column_factors") factors = array.view.cf32();
        const auto* panels = reinterpret_cast<const std::uint8_t*>(arrays.front().view.cdata());
        const kernels::S4Layout layout{k, format.group_of_row(k), format.has_zeros()};
        for (std::int64_t r = 0; r < 70; ++r)
          for (std::int64_t i = 0; i < k; ++i) {
            const std::int64_t g = i / layout.group;
            const std::uint8_t* at =
                panels + r / 64 * layout.panel_bytes() + g * (g > 0 ? layout.group_bytes(0) : 0);
            const std::int64_t in = i - g * layout.group;
            const std::uint8_t byte = at[in / 8 * 256 + r % 64 * 4 + in % 4];
            const std::uint8_t* tail = at + layout.blocks(g) * 256;
            std::uint16_t half = 0;
            std::memcpy(&half, tail + 2 * (r % 64), 2);
            const int zero = format.has_zeros() ? tail[128 + r % 64] : 8;
            const int code = in % 8 < 4 ? byte & 15 : byte >> 4;
            ASSERT_EQ(code - zero, m.code(r, i) - m.zero(r, i)) << name << " " << r << "," << i;
            ASSERT_EQ(f16_to_f32(half) * (factors != nullptr ? factors[r] : 1.0F), m.scale(r, i))
                << name << " " << r << "," << i;
          }
      }
}

TEST(LinearS4, SameBitsForAnyThreadsAndInstructions) {
  const auto w = random_matrix(700, 520, 1);
  const auto x = random_matrix(90, 520, 2);
  for (const std::int64_t m : {1, 12, 90}) {
    std::vector<float> first;
    for (const Isa isa : usable_isas()) {
      for (const int n_threads : {1, 2, 3}) {
        const auto backend = make_cpu_backend({.n_threads = n_threads, .pin = false, .isa = isa});
        const auto weight = backend->prepare_linear(spec_of(w, "int4:g32:asym"));
        const Tensor y = product(*backend, *weight, x->view().rows(0, m));
        const std::vector<float> now(y.view().cf32(), y.view().cf32() + m * 700);
        if (first.empty()) first = now;
        ASSERT_EQ(now, first) << to_string(isa) << ", " << n_threads << " threads, " << m << " rows";
      }
    }
  }
}

TEST(LinearS4, TakesTheMemoryItsFormatSays) {
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  for (const char* format : {"int4:g32:sym", "int4:g128:sym", "int4:channel:sym"}) {
    const auto weight = backend->prepare_linear(spec_of(random_matrix(256, 4096, 1), format));
    EXPECT_EQ(static_cast<std::int64_t>(weight->read_bytes()),
              QuantFormat::parse(format).matrix_bytes(256, 4096))
        << format;
  }
}

TEST(LinearS4, RefusalsNameTheTensor) {
  const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
  const auto message = [&](const LinearSpec& spec) -> std::string {
    try {
      backend->prepare_linear(spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto w = random_matrix(70, 64, 1);
  EXPECT_THAT(message(spec_of(w, "int4:g20")),
              testing::HasSubstr("layer: the CPU backend computes with int4"));
  EXPECT_THAT(message(spec_of(w, "int4:g32:fp32")), testing::HasSubstr("not int4:g32:sym:fp32"));
  w->view().row(69).f32()[3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(message(spec_of(w, "int4")), testing::HasSubstr("layer, rows from 64 on: row 5, column 3"));
}

}  // namespace
}  // namespace triptych
