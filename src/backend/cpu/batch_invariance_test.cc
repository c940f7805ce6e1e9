// With CpuPolicy::batch_invariant the bits of a row are those that it has alone, whatever is computed beside
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/backend_test_util.h"
#include "tensor/convert.h"

namespace triptych {
namespace {

constexpr std::int64_t kK = 160;
constexpr std::int64_t kN = 192;

std::unique_ptr<Backend> invariant_backend(CpuFeatures features, bool int8_attention = true) {
  CpuBackendOptions options;
  options.n_threads = 2;
  options.isa = features;
  options.policy.batch_invariant = true;
  options.policy.bf16_activations = true;
  options.policy.int8_attention = int8_attention;
  return make_cpu_backend(options);
}

std::vector<float> product(Backend& cpu, const LinearWeight& weight, const TensorView& x) {
  Tensor y(DType::kF32, {x.dim(0), weight.n_out()});
  TensorView view = y.view();
  cpu.linear(weight, x, {}, view);
  return {y.f32(), y.f32() + y.view().numel()};
}

// `format`: of quantized weights, or empty.
LinearSpec linear_spec(const std::shared_ptr<Tensor>& w, const std::string& format) {
  LinearSpec spec;
  spec.name = "layer";
  spec.parts.push_back({WeightEntry{"w", w->view(), w, "test"}});
  if (!format.empty()) spec.format = QuantFormat::parse(format);
  return spec;
}

std::shared_ptr<Tensor> weight_of(DType dtype) {
  auto out = std::make_shared<Tensor>(dtype, Shape{kN, kK});
  convert(random_tensor({kN, kK}, 1), *out);
  return out;
}

// Rows [0, 200) in steps of several sizes, across every threshold, against each row alone.
void expect_rows_alone(Backend& cpu, const LinearSpec& spec, const std::string& what) {
  constexpr std::int64_t kRows = 200;
  const Tensor x = random_tensor({kRows, kK}, 2);
  const auto weight = cpu.prepare_linear(spec);
  std::vector<float> alone;
  for (std::int64_t r = 0; r < kRows; ++r) {
    const std::vector<float> row = product(cpu, *weight, x.view().rows(r, r + 1));
    alone.insert(alone.end(), row.begin(), row.end());
  }
  for (const std::int64_t step : {13, 25, 49, 97, 200}) {
    std::vector<float> together;
    for (std::int64_t r = 0; r < kRows; r += step) {
      const std::vector<float> rows = product(cpu, *weight, x.view().rows(r, std::min(kRows, r + step)));
      together.insert(together.end(), rows.begin(), rows.end());
    }
    ASSERT_EQ(together, alone) << what << ", " << step << " rows at once";
  }
}

TEST(BatchInvariance, LinearsOfEveryFormat) {
  for (const Isa isa : usable_isas()) {
    const auto cpu = invariant_backend(isa);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
      expect_rows_alone(*cpu, linear_spec(weight_of(dtype), ""),
                        std::string(to_string(isa)) + ", " + std::string(to_string(dtype)));
    for (const char* format : {"int8", "int8:g32", "int4:g32", "int4:g64:asym:bf16", "nf4"})
      expect_rows_alone(*cpu, linear_spec(weight_of(DType::kF32), format),
                        std::string(to_string(isa)) + ", " + format);
  }
}

// What the default trades for speed, so that the test above means something.
TEST(BatchInvariance, IsNotTheDefault) {
  const auto cpu = backend(2);
  const Tensor x = random_tensor({60, kK}, 2);
  const auto weight = cpu->prepare_linear(linear_spec(weight_of(DType::kF32), "int4:g32"));
  const std::vector<float> together = product(*cpu, *weight, x);
  const std::vector<float> alone = product(*cpu, *weight, x.view().rows(0, 1));
  EXPECT_FALSE(std::equal(alone.begin(), alone.end(), together.begin()));
}

TEST(BatchInvariance, ASegmentDoesNotSeeItsNeighbours) {
  constexpr int kHeads = 6, kD = 40;
  const std::vector<std::int32_t> cu = {0, 300, 303, 340, 640};
  const Tensor q = random_tensor({640, kHeads, kD}, 1);
  const Tensor k = random_tensor({640, 2, kD}, 2);
  const Tensor v = random_tensor({640, 2, kD}, 3);
  for (const Isa isa : usable_isas())
    for (const bool causal : {false, true})
      for (const bool int8 : {false, true}) {
        const auto cpu = invariant_backend(isa, int8);
        Tensor all(DType::kF32, {640, kHeads, kD});
        TensorView view = all.view();
        cpu->attention(attention_args(q, k, v, cu, cu, causal), view);
        for (std::size_t s = 0; s + 1 < cu.size(); ++s) {
          const auto rows = [&](const Tensor& x) { return x.view().rows(cu[s], cu[s + 1]); };
          const std::int32_t n = cu[s + 1] - cu[s];
          // The whole segment; and in floats its last query alone, which sees the same keys.
          for (const std::int32_t n_queries : {n, int8 ? n : 1}) {
            const std::vector<std::int32_t> cu_q = {0, n_queries};
            const std::vector<std::int32_t> cu_k = {0, n};
            Tensor y(DType::kF32, {n_queries, kHeads, kD});
            TensorView out = y.view();
            cpu->attention(attention_args(q.view().rows(cu[s + 1] - n_queries, cu[s + 1]), rows(k), rows(v),
                                          cu_q, cu_k, causal),
                           out);
            const float* expected = all.view().row(cu[s + 1] - n_queries).cf32();
            ASSERT_TRUE(std::equal(y.f32(), y.f32() + y.view().numel(), expected))
                << to_string(isa) << ", segment " << s << ", " << n_queries << " queries, int8 " << int8;
          }
        }
      }
}

// A sequence of 70 tokens in a cache, in steps of `step` tokens; with another sequence in every step, or not.
std::vector<float> through_cache(Backend& cpu, KvDType dtype, int kv_heads, int window, int step,
                                 bool beside) {
  constexpr int kTokens = 150, kHeads = 10, kD = 40, kPage = 16;
  const int kKvHeads = kv_heads;
  const Tensor q = random_tensor({kTokens, kHeads, kD}, 1);
  Tensor k = random_tensor({kTokens, kKvHeads, kD}, 2);
  for (std::int64_t t = 0; t < kTokens; ++t) k.f32()[t * kKvHeads * kD + 11] += 70.0F;  // taken out by pages
  const Tensor v = random_tensor({kTokens, kKvHeads, kD}, 3);
  const auto cache = cpu.make_kv_cache({1, kKvHeads, kD, kPage, 14, dtype});
  const std::vector<std::int32_t> pages = {3, 0, 4, 1, 2, 9, 8, 7, 13, 12};
  const std::vector<std::int32_t> other_pages = {5, 6};
  const std::vector<std::int32_t> other_slots = [] {
    std::vector<std::int32_t> slots(20);
    std::iota(slots.begin(), slots.end(), 5 * kPage);
    return slots;
  }();
  if (beside) cpu.kv_append(*cache, 0, k.view().rows(40, 60), v.view().rows(40, 60), other_slots);
  std::vector<float> out;
  for (int begin = 0; begin < kTokens; begin += step) {
    const int end = std::min(kTokens, begin + step);
    std::vector<std::int32_t> slots;
    for (int t = begin; t < end; ++t)
      slots.push_back(pages[static_cast<std::size_t>(t / kPage)] * kPage + t % kPage);
    cpu.kv_append(*cache, 0, k.view().rows(begin, end), v.view().rows(begin, end), slots);
    // Rows of the step: the other sequence's query first.
    const int n_other = beside ? 1 : 0;
    Tensor queries(DType::kF32, {n_other + end - begin, kHeads, kD});
    const std::int64_t width = kHeads * kD;
    if (beside) std::copy_n(q.f32() + 50 * width, width, queries.f32());
    std::copy(q.f32() + begin * width, q.f32() + end * width, queries.f32() + n_other * width);
    KvSequence mine;
    mine.first_row = n_other;
    mine.n_rows = end - begin;
    mine.n_context = end;
    mine.pages = pages;
    KvSequence other;
    other.n_rows = 1;
    other.n_context = 20;
    other.pages = other_pages;
    std::vector<KvSequence> sequences;
    if (beside) sequences.push_back(other);
    sequences.push_back(mine);
    Tensor y(DType::kF32, queries.shape());
    TensorView view = y.view();
    cpu.paged_attention(*cache, 0, sequences, {0.2F, window}, queries, view);
    out.insert(out.end(), y.f32() + n_other * width, y.f32() + y.view().numel());
  }
  return out;
}

TEST(BatchInvariance, ATokenSeesItsSequenceOnly) {
  for (const Isa isa : usable_isas()) {
    const auto cpu = invariant_backend(isa);
    for (const KvDType dtype :
         {KvDType::kF32, KvDType::kF16, KvDType::kBF16, KvDType::kInt8, KvDType::kFp8, KvDType::kInt4})
      for (const int kv_heads : {2, 5})  // five query heads share keys, or two
        for (const int window : {0, 20}) {
          const std::vector<float> alone = through_cache(*cpu, dtype, kv_heads, window, 1, false);
          for (const int step : {1, 3, 16, 150})
            for (const bool beside : {false, true})
              ASSERT_EQ(through_cache(*cpu, dtype, kv_heads, window, step, beside), alone)
                  << to_string(isa) << ", " << to_string(dtype) << ", " << kv_heads << " heads, window "
                  << window << ", " << step << " tokens a step"
                  << (beside ? ", another sequence beside" : "");
        }
  }
}

}  // namespace
}  // namespace triptych
