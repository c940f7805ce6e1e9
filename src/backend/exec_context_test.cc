// What ExecContext does around a backend's operations: blocks, taps, and products of partial weights.
#include "backend/exec_context.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace triptych {
namespace {

using testing::ElementsAre;

// W [N, K] and b as they are, or some columns of such a matrix.
class PlainLinear final : public LinearWeight {
 public:
  PlainLinear(Tensor w, Tensor b, bool partial) : w_(std::move(w)), b_(std::move(b)), partial_(partial) {}
  std::int64_t n_out() const noexcept override { return w_.view().dim(0); }
  std::int64_t n_in() const noexcept override { return w_.view().dim(1); }
  std::size_t owned_bytes() const noexcept override { return 0; }
  std::size_t read_bytes() const noexcept override { return 0; }
  bool is_partial() const noexcept override { return partial_; }
  const float* w() const { return w_.f32(); }
  float bias(std::int64_t n) const { return b_.view().empty() ? 0.0F : b_.f32()[n]; }

 private:
  Tensor w_, b_;
  bool partial_;
};

float activated(Activation kind, float x) { return kind == Activation::kRelu ? std::max(x, 0.0F) : x; }

// Products, sums and the norm by their formulas, one device of two: `other` is what the second device adds.
class ScalarBackend final : public Backend {
 public:
  TensorView other;
  int n_products = 0;
  int n_reductions = 0;

  std::string describe() const override { return "scalar"; }
  int n_threads() const noexcept override { return 1; }
  void linear(const LinearWeight& weight, const LinearInput& x, const LinearEpilogue& epilogue,
              TensorView& y) override {
    ++n_products;
    const auto& w = static_cast<const PlainLinear&>(weight);
    for (std::int64_t t = 0; t < y.dim(0); ++t)
      for (std::int64_t n = 0; n < w.n_out(); ++n) {
        float sum = w.bias(n);
        for (std::int64_t k = 0; k < w.n_in(); ++k) sum += x.rows.row(t).cf32()[k] * w.w()[n * w.n_in() + k];
        sum = activated(epilogue.activation, sum);
        if (epilogue.residual.data() != nullptr) sum += epilogue.residual.row(t).cf32()[n];
        y.row(t).f32()[n] = sum;
      }
  }
  void all_reduce(TensorView& y) override {
    ++n_reductions;
    add(y, other, y);
  }
  void activation(Activation kind, const TensorView& x, TensorView& y) override {
    for (std::int64_t i = 0; i < x.numel(); ++i) y.f32()[i] = activated(kind, x.cf32()[i]);
  }
  void add(const TensorView& a, const TensorView& b, TensorView& y) override {
    for (std::int64_t i = 0; i < a.numel(); ++i) y.f32()[i] = a.cf32()[i] + b.cf32()[i];
  }
  void rms_norm(const TensorView& x, const TensorView& weight, float eps, TensorView& y) override {
    for (std::int64_t t = 0; t < x.dim(0); ++t) {
      float sum = 0;
      for (std::int64_t d = 0; d < x.dim(1); ++d) sum += x.row(t).cf32()[d] * x.row(t).cf32()[d];
      const float scale = 1.0F / std::sqrt(sum / static_cast<float>(x.dim(1)) + eps);
      for (std::int64_t d = 0; d < x.dim(1); ++d)
        y.row(t).f32()[d] = x.row(t).cf32()[d] * scale * weight.cf32()[d];
    }
  }

  // These tests need no more.
  static void unused() { TRIPTYCH_CHECK(false, "not an operation of these tests"); }
  std::unique_ptr<LinearWeight> prepare_linear(const LinearSpec&) override { return nullptr; }
  std::unique_ptr<EmbeddingWeight> prepare_embedding(const WeightEntry&) override { return nullptr; }
  std::unique_ptr<KvCache> make_kv_cache(const KvGeometry&) override { return nullptr; }
  void embedding(const EmbeddingWeight&, std::span<const std::int32_t>, TensorView&) override { unused(); }
  void attention(const AttentionArgs&, TensorView&) override { unused(); }
  void kv_append(KvCache&, int, const TensorView&, const TensorView&,
                 std::span<const std::int32_t>) override {
    unused();
  }
  void paged_attention(const KvCache&, int, std::span<const KvSequence>, const CacheAttention&,
                       const TensorView&, TensorView&) override {
    unused();
  }
  void layer_norm(const TensorView&, const TensorView&, const TensorView&, float, TensorView&) override {
    unused();
  }
  void rope(TensorView&, const TensorView&, const TensorView&) override { unused(); }
  void gated_activation(Activation, const TensorView&, TensorView&) override { unused(); }
  void scale_rows(TensorView&, std::span<const float>) override { unused(); }
  void gather_rows(const TensorView&, std::span<const std::int32_t>, TensorView&) override { unused(); }
  void scatter_rows(const TensorView&, std::span<const std::int32_t>, TensorView&) override { unused(); }
  void patchify(const TensorView&, int, TensorView&) override { unused(); }
};

Tensor tensor(const Shape& shape, std::initializer_list<float> values) {
  Tensor out(DType::kF32, shape);
  std::copy(values.begin(), values.end(), out.f32());
  return out;
}

std::vector<float> values(const TensorView& x) { return {x.cf32(), x.cf32() + x.numel()}; }

// W = [1 2 | 3 4; 5 6 | 7 -80], b = [1, 2], cut between columns 1 and 2; x = [1 2 | 3 4] and its double.
struct TwoParts {
  PlainLinear first{tensor({2, 2}, {1, 2, 5, 6}), tensor({2}, {1, 2}), true};  // it has the bias
  PlainLinear second{tensor({2, 2}, {3, 4, 7, -80}), Tensor(), true};
  PlainLinear whole{tensor({2, 4}, {1, 2, 3, 4, 5, 6, 7, -80}), tensor({2}, {1, 2}), false};
  Tensor x = tensor({2, 4}, {1, 2, 3, 4, 2, 4, 6, 8});
  Tensor residual = tensor({2, 2}, {10, 20, 30, 40});
  Tensor summand{DType::kF32, {2, 2}};  // of the second part
  ScalarBackend backend;
  Arena arena;

  TwoParts() {
    TensorView y = summand.view();
    backend.linear(second, x.view().cols(2, 4), {}, y);
    backend.other = summand.view();
  }
};

TEST(ExecContext, PartialProductsAreSummedBeforeActivationAndResidual) {
  for (const Activation act : {Activation::kNone, Activation::kRelu})
    for (const bool in_place : {false, true}) {
      TwoParts parts;
      ExecContext cx(parts.backend, parts.arena);
      const auto run = [&](const LinearWeight& w, const TensorView& x) {
        TensorView y = cx.empty({2, 2});
        if (in_place) cx.copy(parts.residual.view(), y);
        cx.linear_into(w, x, y, {.activation = act, .residual = in_place ? y : parts.residual.view()});
        return values(y);
      };
      const std::vector<float> whole = run(parts.whole, parts.x.view());
      EXPECT_EQ(parts.backend.n_reductions, 0);
      EXPECT_EQ(run(parts.first, parts.x.view().cols(0, 2)), whole);
      EXPECT_EQ(parts.backend.n_reductions, 1);
    }
}

TEST(ExecContext, EveryFormOfAPartialProductIsSummedOnce) {
  TwoParts parts;
  ExecContext cx(parts.backend, parts.arena);
  const TensorView whole = parts.x.view();
  const TensorView half = whole.cols(0, 2);
  EXPECT_EQ(values(cx.linear(parts.first, half)), values(cx.linear(parts.whole, whole)));
  const LinearInput a = cx.linear(parts.first, half, Activation::kRelu);
  const LinearInput b = cx.linear(parts.whole, whole, Activation::kRelu);
  EXPECT_EQ(values(a.rows), values(b.rows));
  EXPECT_EQ(parts.backend.n_reductions, 2);
  TensorView sum = cx.empty({2, 2});
  cx.copy(parts.residual.view(), sum);
  cx.linear_add(parts.first, half, sum);
  EXPECT_THAT(values(sum), ElementsAre(10 + 31, 20 - 280, 30 + 61, 40 - 562));
  EXPECT_EQ(parts.backend.n_reductions, 3);
}

TEST(ExecContext, PartialWeightsTakeNoNormAndNoGate) {
  TwoParts parts;
  ExecContext cx(parts.backend, parts.arena);
  const TensorView half = parts.x.view().cols(0, 2);
  const Tensor weight = tensor({2}, {1, 1});
  const LinearInput normed(half, LinearInput::Norm::kRmsNorm, weight.view(), {}, 1e-6F);
  EXPECT_THROW(cx.linear(parts.first, normed), Error) << "a norm needs all columns";
  EXPECT_THROW(cx.gated_linear(Activation::kSilu, parts.first, half), Error);
}

class Recorder final : public ExecObserver {
 public:
  explicit Recorder(bool taps) : taps_(taps) {}
  bool wants_taps() const noexcept override { return taps_; }
  void on_tap(std::string_view name, const TensorView& value) override {
    events.push_back(fmt::format("{} {}", name, fmt::join(values(value), " ")));
  }
  void on_block_begin(const BlockName& block, const TensorView& h) override {
    events.push_back(fmt::format("begin {} {}", block.index, h.cf32()[0]));
  }
  void on_block_end(const BlockName& block, const TensorView& h) override {
    events.push_back(fmt::format("end {} {}", block.index, h.cf32()[0]));
  }
  std::vector<std::string> events;

 private:
  bool taps_;
};

// h [1, 1] through blocks of h += 3 (w h) with w = 1, 2, ...: the norm of one number is its sign.
float run_blocks(ScalarBackend& backend, ExecObserver* observer) {
  Arena arena;
  ExecContext cx(backend, arena, observer);
  const Tensor ones = tensor({1}, {1});
  TensorView h = cx.empty({1, 1});
  h.f32()[0] = 2;
  const std::size_t before = arena.bytes_in_use();
  for (int i = 0; i < 2; ++i) {
    const PlainLinear w(tensor({1, 1}, {static_cast<float>(3 * (i + 1))}), Tensor(), false);
    cx.block({"model", "layers", i}, h, [&] {
      const LinearInput x(h, LinearInput::Norm::kRmsNorm, ones.view(), {}, 0);
      cx.linear_add(w, cx.tap_input(x, "norm"), h, "mlp");
    });
  }
  EXPECT_EQ(arena.bytes_in_use(), before) << "a block gives back what it took";
  return h.cf32()[0];
}

TEST(ExecContext, BlocksAreBracketedAndTappedByName) {
  ScalarBackend backend;
  EXPECT_EQ(run_blocks(backend, nullptr), 11);
  Recorder boundaries(false);
  EXPECT_EQ(run_blocks(backend, &boundaries), 11);
  EXPECT_THAT(boundaries.events, ElementsAre("begin 0 2", "end 0 5", "begin 1 5", "end 1 11"));
  Recorder taps(true);
  const int n_before = backend.n_products;
  EXPECT_EQ(run_blocks(backend, &taps), 11);
  EXPECT_EQ(backend.n_products - n_before, 2) << "a tap costs no product";
  EXPECT_THAT(taps.events,
              ElementsAre("begin 0 2", "model.layers.0.norm 1", "model.layers.0.mlp 3", "model.layers.0 5",
                          "end 0 5", "begin 1 5", "model.layers.1 11", "end 1 11"));
}

TEST(ExecContext, PartsOutsideABlockAreNotTapped) {
  ScalarBackend backend;
  Arena arena;
  Recorder taps(true);
  ExecContext cx(backend, arena, &taps);
  const PlainLinear w(tensor({1, 1}, {3}), Tensor(), false);
  TensorView h = cx.empty({1, 1});
  h.f32()[0] = 2;
  cx.linear_add(w, h, h, "mlp");
  EXPECT_TRUE(taps.events.empty());
}

}  // namespace
}  // namespace triptych
