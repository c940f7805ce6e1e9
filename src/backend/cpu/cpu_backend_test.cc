// The CPU backend against plain double-precision loops, for several thread counts.
#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/backend_test_util.h"
#include "backend/cpu/kernels/test_util.h"
#include "base/error.h"
#include "support/allocation_counter.h"

namespace triptych {
namespace {

using kernels::random_floats;

WeightEntry random_weight(DType dtype, const Shape& shape, unsigned seed, std::vector<float>* as_float) {
  const ElementType type = dtype == DType::kF32   ? ElementType::kF32
                           : dtype == DType::kF16 ? ElementType::kF16
                                                  : ElementType::kBF16;
  auto stored = std::make_shared<kernels::StoredArray>(
      type, random_floats(static_cast<std::size_t>(shape.numel()), seed, 0.2F), 2);
  as_float->insert(as_float->end(), stored->as_float().begin(), stored->as_float().end());
  WeightEntry entry;
  entry.name = "w" + std::to_string(seed);
  entry.view = TensorView::of_const(stored->data(), dtype, shape);
  entry.owner = stored;
  return entry;
}

struct LinearProblem {
  int m;
  int k;
  std::vector<int> n;  // rows of each part
  DType dtype = DType::kF32;
  bool bias = true;
  Activation activation = Activation::kNone;
  enum { kNoResidual, kResidual, kInPlace } residual = kNoResidual;
};

class LinearCase {
 public:
  explicit LinearCase(const LinearProblem& p) : p_(p), n_total_(std::accumulate(p.n.begin(), p.n.end(), 0)) {
    LinearSpec spec;
    spec.name = "test";
    unsigned seed = 10;
    for (const int n : p.n) {
      spec.add(random_weight(p.dtype, {n, p.k}, seed++, &w_));
      if (p.bias) spec.parts.back().bias = random_weight(p.dtype, {n}, seed++, &b_);
    }
    spec_ = spec;
    x_ = random_tensor({p.m, p.k + 5}, 1);
    residual_ = random_tensor({p.m, n_total_ + 1}, 2);
  }

  Tensor run(Backend& b) const {
    const std::unique_ptr<LinearWeight> weight = b.prepare_linear(spec_);
    EXPECT_EQ(weight->n_out(), n_total_);
    EXPECT_EQ(weight->n_in(), p_.k);
    Tensor y(DType::kF32, {p_.m, n_total_ + 2});
    TensorView out = y.view().cols(0, n_total_);
    for (std::int64_t i = 0; i < y.shape().numel(); ++i) y.f32()[i] = -77.0F;
    LinearEpilogue epilogue;
    epilogue.activation = p_.activation;
    if (p_.residual == LinearProblem::kResidual) epilogue.residual = residual_.view().cols(0, n_total_);
    if (p_.residual == LinearProblem::kInPlace) {
      copy(residual_.view().cols(0, n_total_), out);
      epilogue.residual = out;
    }
    b.linear(*weight, x_.view().cols(0, p_.k), epilogue, out);
    return y;
  }

  // Error of a sum of k products; an activation changes it by its slope, at most 1.13, and a few roundings.
  void check(const Tensor& y, const std::string& what) const {
    for (int m = 0; m < p_.m; ++m) {
      for (int n = 0; n < n_total_ + 2; ++n) {
        const float got = y.f32()[m * (n_total_ + 2) + n];
        if (n >= n_total_) {
          ASSERT_EQ(got, -77.0F) << what;
          continue;
        }
        double sum = p_.bias ? static_cast<double>(b_[static_cast<std::size_t>(n)]) : 0;
        double magnitude = std::fabs(sum);
        for (int i = 0; i < p_.k; ++i) {
          const double product = static_cast<double>(x_.f32()[m * (p_.k + 5) + i]) *
                                 static_cast<double>(w_[static_cast<std::size_t>(n * p_.k + i)]);
          sum += product;
          magnitude += std::fabs(product);
        }
        if (p_.activation == Activation::kGelu) sum = sum * 0.5 * std::erfc(-sum * 0.70710678118654752);
        if (p_.residual != LinearProblem::kNoResidual)
          sum += static_cast<double>(residual_.f32()[m * (n_total_ + 1) + n]);
        ASSERT_NEAR(static_cast<double>(got), sum, 1.13 * (p_.k + 8) * 0x1p-24 * (magnitude + 4))
            << what << " m=" << p_.m << " k=" << p_.k << " n=" << n_total_ << " at " << m << ", " << n;
      }
    }
  }

 private:
  LinearProblem p_;
  int n_total_;
  std::vector<float> w_;
  std::vector<float> b_;
  LinearSpec spec_;
  Tensor x_;
  Tensor residual_;
};

TEST(CpuBackend, LinearMatchesDoublesAtEverySize) {
  const auto cpu = backend(2);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (const int m : {1, 2, 5, 16, 24, 25, 29, 59})
      for (const int k : {1, 15, 64, 100})
        for (const int n : {1, 16, 31, 33, 70}) {
          const LinearCase c({m, k, {n}, dtype});
          c.check(c.run(*cpu), "plain");
        }
}

TEST(CpuBackend, LinearWithSeveralPartsEpilogueAndBlocksOfK) {
  const auto cpu = backend(2);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int m : {1, 9, 40}) {
      for (const bool bias : {false, true}) {
        for (const auto residual :
             {LinearProblem::kNoResidual, LinearProblem::kResidual, LinearProblem::kInPlace}) {
          for (const Activation a : {Activation::kNone, Activation::kGelu}) {
            const LinearCase c({m, 1100, {40, 7, 33}, dtype, bias, a, residual});
            c.check(c.run(*cpu), "parts");
          }
        }
      }
    }
  }
  const LinearCase tall({1600, 40, {40}, DType::kF32});  // more than one block of rows
  tall.check(tall.run(*cpu), "tall");
}

TEST(CpuBackend, SameBitsForAnyNumberOfThreads) {
  const auto one = backend(1);
  for (const int n_threads : {2, 3, 5}) {
    const auto many = backend(n_threads);
    for (const int m : {1, 16, 40, 200}) {
      const LinearCase c({m, 700, {100, 60}, DType::kBF16, true, Activation::kSilu, LinearProblem::kInPlace});
      const Tensor a = c.run(*one);
      const Tensor b = c.run(*many);
      ASSERT_EQ(std::memcmp(a.f32(), b.f32(), static_cast<std::size_t>(a.shape().numel()) * 4), 0)
          << n_threads << " threads, m=" << m;
    }
  }
}

// Within the two ways to multiply a row's bits do not depend on the others.
TEST(CpuBackend, LinearRowsDoNotDependOnTheBatch) {
  const auto cpu = backend(2);
  std::vector<float> unused;
  LinearSpec spec;
  spec.name = "test";
  spec.add(random_weight(DType::kF16, {130, 600}, 3, &unused));
  const auto weight = cpu->prepare_linear(spec);
  const Tensor x = random_tensor({300, 600}, 4);
  const auto run = [&](int begin, int end) {
    Tensor y(DType::kF32, {end - begin, 130});
    TensorView view = y.view();
    cpu->linear(*weight, x.view().rows(begin, end), {}, view);
    return y;
  };
  const Tensor many = run(0, 300);
  const Tensor fewer = run(100, 125);
  EXPECT_EQ(std::memcmp(many.f32() + 100 * 130, fewer.f32(), 25 * 130 * 4), 0);
  const Tensor few = run(0, 24);
  const Tensor single = run(7, 8);
  EXPECT_EQ(std::memcmp(few.f32() + 7 * 130, single.f32(), 130 * 4), 0);
}

TEST(CpuBackend, WeightsThatDoNotFitAreNamed) {
  const auto cpu = backend(1);
  std::vector<float> unused;
  LinearSpec spec;
  spec.name = "layer";
  spec.add(random_weight(DType::kF32, {4, 8}, 3, &unused));
  spec.add(random_weight(DType::kF32, {4, 9}, 4, &unused));
  try {
    cpu->prepare_linear(spec);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidFile);
    EXPECT_NE(std::string(e.what()).find("w4"), std::string::npos) << e.what();
  }
  spec.parts.pop_back();
  auto& entry = std::get<WeightEntry>(spec.parts[0].source);
  entry.view = TensorView::of_const(entry.view.cdata(), DType::kI8, {4, 8});
  try {
    cpu->prepare_linear(spec);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(e.what()).find("w3"), std::string::npos) << e.what();
  }
  EXPECT_THROW(cpu->make_kv_cache({1 << 30, 1 << 20, 1 << 20, 64, 1 << 30}), Error);
}

// None of their instructions may run before: a backend measures when it starts.
TEST(CpuBackend, RefusesInstructionsThatTheMachineLacks) {
  bool any = false;
  for (const Isa isa : known_isas()) {
    if (has_isa(isa)) continue;
    any = true;
    CpuBackendOptions options;
    options.n_threads = 1;
    options.isa = isa;
    options.policy.bf16_activations = true;
    try {
      make_cpu_backend(options);
      ADD_FAILURE() << to_string(isa);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(std::string(e.what()).find("this machine lacks "), 0U) << e.what();
    }
  }
  if (!any) GTEST_SKIP() << "this machine has every preset";
}

// Activations in bfloat16: an error of 2^-9 of each product where the machine has such products and they are
// said to gain, none elsewhere.
void expect_bf16_activations(const CpuTuning& tuning, bool has_products) {
  CpuBackendOptions options;
  options.n_threads = 2;
  const auto plain = make_cpu_backend(options);
  options.policy.bf16_activations = true;
  options.tuning = tuning;
  const auto rounded = make_cpu_backend(options);
  for (const std::int64_t k : {64, 70, 71, 1100})
    for (const std::int64_t m : {5, 30, 200}) {
      if (tuning.emulated_tiles && k * m > 100'000) continue;
      std::vector<float> w;
      LinearSpec spec;
      spec.name = "layer";
      spec.add(random_weight(DType::kBF16, {100, k}, 3, &w));
      const Tensor x = random_tensor({m, k}, 4);
      Tensor expected(DType::kF32, {m, 100});
      Tensor got(DType::kF32, {m, 100});
      TensorView view = expected.view();
      plain->linear(*plain->prepare_linear(spec), x, {}, view);
      view = got.view();
      rounded->linear(*rounded->prepare_linear(spec), x, {}, view);
      double largest = 0;
      for (std::int64_t i = 0; i < m * 100; ++i) {
        double bound = 1e-5;
        for (std::int64_t j = 0; j < k; ++j)
          bound += std::fabs(static_cast<double>(x.f32()[i / 100 * k + j]) *
                             static_cast<double>(w[static_cast<std::size_t>(i % 100 * k + j)])) *
                   0x1p-9;
        const double error = std::fabs(static_cast<double>(got.f32()[i] - expected.f32()[i]));
        ASSERT_LE(error, bound) << m << " rows of " << k << " at " << i;
        largest = std::max(largest, error);
      }
      const bool rounds = has_products && k % 2 == 0 && m > 24;
      EXPECT_EQ(largest > 0, rounds) << m << " rows of " << k;
    }
}

TEST(CpuBackend, Bf16ActivationsRoundXOnly) {
  expect_bf16_activations({.bf16_gains = true}, active_features().has_all(Isa::kAvx512Bf16));
}

TEST(CpuBackend, Bf16ActivationsRoundXOnlyOverTiles) {
  expect_bf16_activations({.bf16_gains = true, .emulated_tiles = true}, true);
}

TEST(CpuBackend, Bf16ActivationsNeedAProcessorThatGains) {
  expect_bf16_activations({.bf16_gains = false}, false);
}

TEST(CpuBackend, RowsAndPointwise) {
  const auto cpu = backend(2);
  std::vector<float> table;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    table.clear();
    const auto embedding = cpu->prepare_embedding(random_weight(dtype, {30, 17}, 1, &table));
    const std::vector<std::int32_t> ids = {29, 0, 7, 7};
    Tensor y(DType::kF32, {4, 17});
    TensorView view = y.view();
    cpu->embedding(*embedding, ids, view);
    for (std::size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(std::memcmp(y.f32() + i * 17, table.data() + ids[i] * 17, 17 * 4), 0);
  }

  const Tensor a = random_tensor({40, 33}, 2);
  const Tensor b = random_tensor({40, 33}, 3);
  Tensor sum(DType::kF32, {40, 33});
  TensorView view = sum.view();
  cpu->add(a, b, view);
  for (int i = 0; i < 40 * 33; ++i) ASSERT_EQ(sum.f32()[i], a.f32()[i] + b.f32()[i]);
  const std::vector<float> factors = random_floats(40, 4);
  cpu->scale_rows(view, factors);
  for (int i = 0; i < 40 * 33; ++i)
    ASSERT_EQ(sum.f32()[i], (a.f32()[i] + b.f32()[i]) * factors[static_cast<std::size_t>(i / 33)]);

  const std::vector<std::int32_t> rows = {3, 39, 0};
  Tensor picked(DType::kF32, {3, 33});
  view = picked.view();
  cpu->gather_rows(a, rows, view);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(std::memcmp(picked.f32() + i * 33, a.f32() + rows[i] * 33, 33 * 4), 0);
  Tensor target = Tensor::zeros(DType::kF32, {40, 33});
  view = target.view();
  cpu->scatter_rows(picked, rows, view);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(std::memcmp(target.f32() + rows[i] * 33, a.f32() + rows[i] * 33, 33 * 4), 0);

  Tensor gated(DType::kF32, {40, 16});
  view = gated.view();
  const TensorView wide = a.view().cols(0, 32);
  cpu->gated_activation(Activation::kSilu, wide, view);
  for (int t = 0; t < 40; ++t) {
    for (int i = 0; i < 16; ++i) {
      const double g = static_cast<double>(a.f32()[t * 33 + i]);
      ASSERT_NEAR(static_cast<double>(gated.f32()[t * 16 + i]),
                  g / (1 + std::exp(-g)) * static_cast<double>(a.f32()[t * 33 + 16 + i]), 1e-6);
    }
  }
}

TEST(CpuBackend, NormsOverStridedHeads) {
  const auto cpu = backend(2);
  const Tensor wide = random_tensor({9, 3 * 20}, 1);
  const Tensor weight = random_tensor({10}, 2);
  const Tensor bias = random_tensor({10}, 3);
  const TensorView heads = wide.view().cols(20, 40).split_last(2, 10);  // [9, 2, 10], strided
  Tensor y(DType::kF32, {9, 2, 10});
  TensorView view = y.view();
  cpu->layer_norm(heads, weight, bias, 1e-5F, view);
  for (int t = 0; t < 9; ++t) {
    for (int h = 0; h < 2; ++h) {
      const float* row = wide.f32() + t * 60 + 20 + h * 10;
      double mean = 0;
      double variance = 0;
      for (int i = 0; i < 10; ++i) mean += static_cast<double>(row[i]) / 10;
      for (int i = 0; i < 10; ++i) variance += std::pow(static_cast<double>(row[i]) - mean, 2) / 10;
      for (int i = 0; i < 10; ++i)
        ASSERT_NEAR(static_cast<double>(y.f32()[(t * 2 + h) * 10 + i]),
                    (static_cast<double>(row[i]) - mean) / std::sqrt(variance + 1e-5) *
                            static_cast<double>(weight.f32()[i]) +
                        static_cast<double>(bias.f32()[i]),
                    1e-5);
    }
  }
}

TEST(CpuBackend, RopeTurnsTheFirstPairsOnly) {
  const auto cpu = backend(2);
  const Tensor before = random_tensor({7, 3, 20}, 1);
  Tensor x = Tensor::copy_of(before);
  Tensor cos(DType::kF32, {7, 6});
  Tensor sin(DType::kF32, {7, 6});
  for (int i = 0; i < 42; ++i) {
    cos.f32()[i] = std::cos(static_cast<float>(i) * 0.3F);
    sin.f32()[i] = std::sin(static_cast<float>(i) * 0.3F);
  }
  TensorView view = x.view();
  cpu->rope(view, cos, sin);
  for (int t = 0; t < 7; ++t) {
    for (int h = 0; h < 3; ++h) {
      for (int d = 0; d < 20; ++d) {
        const float* row = before.f32() + (t * 3 + h) * 20;
        const int pair = d % 6;
        const double c = static_cast<double>(cos.f32()[t * 6 + pair]);
        const double s = static_cast<double>(sin.f32()[t * 6 + pair]);
        const double lo = static_cast<double>(row[pair]);
        const double hi = static_cast<double>(row[pair + 6]);
        const double expected =
            d < 6 ? lo * c - hi * s : (d < 12 ? hi * c + lo * s : static_cast<double>(row[d]));
        ASSERT_NEAR(static_cast<double>(x.f32()[(t * 3 + h) * 20 + d]), expected, 1e-6)
            << t << " " << h << " " << d;
      }
    }
  }
}

TEST(CpuBackend, PatchesAreFlattenedAsAConvolutionWeight) {
  const auto cpu = backend(2);
  const Tensor picture = random_tensor({3, 8, 12}, 1);
  Tensor rows(DType::kF32, {6, 48});
  TensorView view = rows.view();
  cpu->patchify(picture, 4, view);
  for (int gy = 0; gy < 2; ++gy)
    for (int gx = 0; gx < 3; ++gx)
      for (int c = 0; c < 3; ++c)
        for (int py = 0; py < 4; ++py)
          for (int px = 0; px < 4; ++px)
            ASSERT_EQ(rows.f32()[(gy * 3 + gx) * 48 + c * 16 + py * 4 + px],
                      picture.f32()[(c * 8 + gy * 4 + py) * 12 + gx * 4 + px]);
}

// A layer's worth of operations, twice: the second time takes no memory.
TEST(CpuBackend, NoAllocationAfterTheFirstStep) {
  const auto cpu = backend(3);
  std::vector<float> unused;
  LinearSpec spec;
  spec.name = "qkv";
  for (unsigned i = 0; i < 3; ++i) spec.add(random_weight(DType::kF16, {64, 64}, i, &unused));
  const auto weight = cpu->prepare_linear(spec);
  const auto cache = cpu->make_kv_cache({1, 2, 32, 16, 40, KvDType::kBF16});
  std::vector<std::int32_t> pages(40);
  std::iota(pages.begin(), pages.end(), 0);
  std::vector<std::int32_t> slots(300);
  std::iota(slots.begin(), slots.end(), 0);
  const Tensor x = random_tensor({300, 64}, 5);
  Tensor qkv(DType::kF32, {300, 192});
  Tensor y(DType::kF32, {300, 2, 32});
  const Tensor norm = random_tensor({64}, 6);
  const Tensor cos = random_tensor({300, 16}, 7);
  const std::vector<std::int32_t> cu = {0, 100, 300};
  const auto step = [&](int n, int n_context) {
    TensorView out = qkv.view().rows(0, n);
    cpu->linear(*weight, x.view().rows(0, n), {}, out);
    TensorView q = out.cols(0, 64).split_last(2, 32);
    TensorView k = out.cols(64, 128).split_last(2, 32);
    const TensorView v = out.cols(128, 192).split_last(2, 32);
    cpu->rope(q, cos.view().rows(0, n), cos.view().rows(0, n));
    cpu->kv_append(
        *cache, 0, k, v,
        std::span(slots).subspan(static_cast<std::size_t>(n_context - n), static_cast<std::size_t>(n)));
    const KvSequence s = {0, n, n_context, pages};
    TensorView attended = y.view().rows(0, n);
    cpu->paged_attention(*cache, 0, {&s, 1}, 0.1F, q, attended);
    TensorView flat = attended.merge_last();
    cpu->rms_norm(flat, norm, 1e-6F, flat);
    cpu->activation(Activation::kGelu, flat, flat);
    if (n == 300) {
      AttentionArgs args;
      args.q = q;
      args.k = k;
      args.v = v;
      args.cu_q = cu;
      args.cu_k = cu;
      cpu->attention(args, attended);
    }
  };
  step(300, 300);
  step(1, 300);
  const long before = n_allocations();
  step(300, 300);
  step(1, 300);
  step(4, 300);
  EXPECT_EQ(n_allocations(), before);
  allocate_once();
  EXPECT_GT(n_allocations(), before) << "the counter does not count";
}

}  // namespace
}  // namespace triptych
