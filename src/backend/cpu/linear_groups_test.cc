// int8 in groups and nf4, against the codec's own arithmetic.
#include "backend/cpu/linear_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
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

Tensor product(Backend& backend, const LinearSpec& spec, const TensorView& x) {
  const auto weight = backend.prepare_linear(spec);
  Tensor y(DType::kF32, {x.dim(0), weight->n_out()});
  TensorView out = y.view();
  backend.linear(*weight, x, {}, out);
  return y;
}

TEST(LinearGroups, EqualsTheCodecsArithmetic) {
  for (const char* name :
       {"int8:g32", "int8:g128:bf16", "int8:g64:fp32", "nf4", "nf4:g32:bf16", "nf4:channel"})
    for (const std::int64_t k : {40, 129, 300})
      for (const std::int64_t m : {1, 7, 40}) {
        const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
        const auto w = random_matrix(150, k, 1);
        const auto x = random_matrix(m, k, 2);
        LinearSpec spec;
        spec.name = "layer";
        spec.add(WeightEntry{"w", w->view(), w, "test"});
        spec.format = QuantFormat::parse(name);
        const QuantizedMatrix stored = quantize(w->view(), *spec.format);
        Tensor exact(DType::kF32, {m, 150}), levels(DType::kF32, {m, 150});
        for (std::int64_t r = 0; r < m; ++r) {
          const float* row = x->view().row(r).cf32();
          float largest = 0;
          for (std::int64_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(row[i]));
          for (std::int64_t c = 0; c < 150; ++c) {
            double sum = 0, sum_of_levels = 0;
            for (std::int64_t i = 0; i < k; ++i) {
              const double q = std::nearbyint(row[i] * (127.0F / largest));
              sum += q * static_cast<double>(stored.value(c, i));
              if (spec.format->code == QuantCode::kNf4)
                sum_of_levels += q * std::nearbyint(kNf4Levels[stored.code(c, i)] * 127) / 127 *
                                 static_cast<double>(stored.scale(c, i));
            }
            const double scale = static_cast<double>(largest / 127.0F);
            exact.view().row(r).f32()[c] = static_cast<float>(sum * scale);
            levels.view().row(r).f32()[c] = static_cast<float>(sum_of_levels * scale);
          }
        }
        const Tensor y = product(*backend, spec, x->view());
        if (spec.format->code == QuantCode::kNf4) {
          EXPECT_GT(sqnr_db(levels, y), 110.0) << name << " k=" << k << " m=" << m;
          EXPECT_GT(sqnr_db(exact, y), 40.0) << name << " k=" << k << " m=" << m;
        } else {
          EXPECT_GT(sqnr_db(exact, y), 110.0) << name << " k=" << k << " m=" << m;
        }
      }
}

TEST(LinearGroups, BorrowedArraysGiveTheSameBits) {
  for (const char* name : {"int8:g32", "nf4"}) {
    const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
    const auto w = random_matrix(150, 300, 1);
    const auto x = random_matrix(9, 300, 2);
    LinearSpec spec;
    spec.name = "layer";
    spec.add(WeightEntry{"w", w->view(), w, "test"});
    spec.format = QuantFormat::parse(name);
    const Tensor expected = product(*backend, spec, x->view());
    const auto made = backend->prepare_linear(spec);
    const PackedLinear packed{*spec.format, 150, 300, made->packed()};
    LinearSpec stored;
    stored.name = "layer";
    stored.add(packed);
    const auto borrowed = backend->prepare_linear(stored);
    EXPECT_EQ(borrowed->owned_bytes(), 0U);
    EXPECT_EQ(borrowed->borrowed_bytes(), made->owned_bytes());
    const Tensor y = product(*backend, stored, x->view());
    for (std::int64_t i = 0; i < 9 * 150; ++i) ASSERT_EQ(y.f32()[i], expected.f32()[i]);
  }
}

}  // namespace
}  // namespace triptych
