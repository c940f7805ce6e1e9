// What the quantized linears of all formats share, through the backend.
#include "backend/cpu/linear_quantized.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/backend_test_util.h"

namespace triptych {
namespace {

// Rows of x that have four outliers each, in channels that no other row has them in.
Tensor rows_with_outliers(std::int64_t n_rows, std::int64_t k) {
  Tensor x = random_tensor({n_rows, k}, 3);
  for (std::int64_t r = 0; r < n_rows; ++r)
    for (std::int64_t e = 0; e < 4; ++e)
      x.f32()[r * k + (4 * r + e) % k] = static_cast<float>(e % 2 == 0 ? 400 - 100 * e : 100 * e - 400);
  return x;
}

std::vector<float> outputs(Backend& cpu, const LinearWeight& weight, const TensorView& x, bool gated) {
  const std::int64_t width = gated ? weight.n_out() / 2 : weight.n_out();
  Tensor y(DType::kF32, {x.dim(0), width});
  TensorView view = y.view();
  if (gated) {
    EXPECT_TRUE(cpu.gated_linear(weight, x, {.activation = Activation::kSilu, .residual = {}}, view));
  } else {
    cpu.linear(weight, x, {}, view);
  }
  return {y.f32(), y.f32() + y.view().numel()};
}

// However many rows of a call have outliers, each keeps its own: its bits are those it has alone.
TEST(LinearQuantized, OutliersOfOtherRowsDoNotChangeARow) {
  CpuBackendOptions options;
  options.n_threads = 2;
  options.policy.exact_groups = true;  // one algorithm for any number of rows
  const auto cpu = make_cpu_backend(options);
  constexpr std::int64_t kRows = 40;  // 160 channels with outliers
  constexpr std::int64_t kK = 320;
  const Tensor x = rows_with_outliers(kRows, kK);
  const auto w = std::make_shared<Tensor>(random_tensor({384, kK}, 1));
  for (const auto& [format, multiplies_gated] :
       {std::pair("int8", true), std::pair("int8:g32", false), std::pair("int4:g32", true),
        std::pair("int4:g64:asym:bf16", true), std::pair("nf4", false)})
    for (const bool gated : {false, true}) {
      if (gated && !multiplies_gated) continue;
      LinearSpec spec;
      spec.name = "layer";
      spec.add(WeightEntry{"w", w->view(), w, "test"});
      spec.format = QuantFormat::parse(format);
      const auto weight = cpu->prepare_linear(spec);
      const std::vector<float> all = outputs(*cpu, *weight, x, gated);
      const std::int64_t width = static_cast<std::int64_t>(all.size()) / kRows;
      for (std::int64_t r = 0; r < kRows; ++r) {
        const std::vector<float> alone = outputs(*cpu, *weight, x.view().rows(r, r + 1), gated);
        ASSERT_EQ(alone, std::vector<float>(all.begin() + r * width, all.begin() + (r + 1) * width))
            << format << (gated ? " gated" : "") << ", row " << r;
      }
    }
}

}  // namespace
}  // namespace triptych
