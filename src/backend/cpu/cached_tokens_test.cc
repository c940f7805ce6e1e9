// Norms, received attention and moves of cached tokens against their definitions.
#include "backend/cpu/cached_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "backend/cpu/backend_test_util.h"
#include "base/error.h"

namespace triptych {
namespace {

constexpr int kLayers = 2;
constexpr int kKvHeads = 2;
constexpr int kHeads = 6;
constexpr int kHeadDim = 40;
constexpr int kPageTokens = 8;
constexpr int kTokens = 43;  // the last page has three
constexpr float kScale = 0.2F;
constexpr KvDType kAllTypes[] = {KvDType::kF32,  KvDType::kF16, KvDType::kBF16,
                                 KvDType::kInt8, KvDType::kFp8, KvDType::kInt4};

double rounding(KvDType type) {  // relative to a row's largest value
  switch (type) {
    case KvDType::kF32:
      return 1e-6;
    case KvDType::kF16:
      return 1e-3;
    case KvDType::kBF16:
      return 8e-3;
    case KvDType::kInt8:
      return 1e-2;
    case KvDType::kFp8:
      return 6e-2;
    case KvDType::kInt4:
      return 1.5e-1;
  }
  return 0;
}

// A sequence of kTokens in a cache; keys carry a bias, so that quantized pages have offsets, which differ.
class CachedTokens : public testing::TestWithParam<KvDType> {
 protected:
  void fill(Backend& backend) {
    cache_ = backend.make_kv_cache({kLayers, kKvHeads, kHeadDim, kPageTokens, 9, GetParam()});
    for (int layer = 0; layer < kLayers; ++layer) {
      keys_.push_back(random_tensor({kTokens, kKvHeads, kHeadDim}, 10U + static_cast<unsigned>(layer)));
      values_.push_back(random_tensor({kTokens, kKvHeads, kHeadDim}, 20U + static_cast<unsigned>(layer)));
      for (std::int64_t t = 0; t < kTokens; ++t)
        keys_.back().f32()[t * kKvHeads * kHeadDim + 7] += t < 20 ? 30.0F : -25.0F;
      TensorView k = keys_.back().view();
      TensorView v = values_.back().view();
      backend.kv_append(*cache_, layer, k, v, slots(0, kTokens));
    }
  }
  std::int32_t slot(int t) const {
    return pages_[static_cast<std::size_t>(t / kPageTokens)] * kPageTokens + t % kPageTokens;
  }
  std::vector<std::int32_t> slots(int begin, int end) const {
    std::vector<std::int32_t> out;
    for (int t = begin; t < end; ++t) out.push_back(slot(t));
    return out;
  }
  KvSequence sequence(int n_rows, int n_context) const {
    KvSequence s;
    s.n_rows = n_rows;
    s.n_context = n_context;
    s.pages = pages_;
    return s;
  }
  double key(int layer, std::int64_t t, std::int64_t head, std::int64_t d) const {
    return static_cast<double>(
        keys_[static_cast<std::size_t>(layer)].f32()[(t * kKvHeads + head) * kHeadDim + d]);
  }

  const std::vector<std::int32_t> pages_ = {5, 2, 8, 0, 3, 7};
  std::unique_ptr<KvCache> cache_;
  std::vector<Tensor> keys_, values_;  // [layer]
};

TEST_P(CachedTokens, NormsAreThoseOfTheKeys) {
  const auto cpu = backend(2);
  fill(*cpu);
  const std::vector<std::int32_t> wanted = slots(3, 30);
  std::vector<float> norms(wanted.size() * kKvHeads);
  for (int layer = 0; layer < kLayers; ++layer) {
    cpu->key_norms(*cache_, layer, wanted, norms);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      for (std::int64_t h = 0; h < kKvHeads; ++h) {
        double square = 0;
        for (std::int64_t d = 0; d < kHeadDim; ++d)
          square += std::pow(key(layer, 3 + static_cast<std::int64_t>(i), h, d), 2);
        EXPECT_NEAR(norms[i * kKvHeads + static_cast<std::size_t>(h)], std::sqrt(square),
                    rounding(GetParam()) * std::sqrt(square))
            << layer << " " << i << " " << h;
      }
  }
}

// Rows 30 to 36 of the sequence, which are rows 4 to 10 of the step's queries.
TEST_P(CachedTokens, ReceivedAttentionIsTheSumOfTheSoftmax) {
  const auto cpu = backend(2);
  fill(*cpu);
  const int n_rows = 7;
  const int n_context = 37;
  const Tensor q = random_tensor({15, kHeads, kHeadDim}, 3, 0.3F);
  KvSequence s = sequence(n_rows, n_context);
  s.first_row = 4;
  for (const int window : {0, 1, 12, 33}) {
    std::vector<double> expected(n_context, 1.0);
    for (int r = 0; r < n_rows; ++r)
      for (std::int64_t h = 0; h < kHeads; ++h) {
        const int end = n_context - n_rows + r + 1;
        const int first = window > 0 ? std::max(0, end - window) : 0;
        std::vector<double> weights;
        for (int t = first; t < end; ++t) {
          double score = 0;
          for (std::int64_t d = 0; d < kHeadDim; ++d)
            score += static_cast<double>(q.f32()[((4 + r) * kHeads + h) * kHeadDim + d]) *
                     key(1, t, h / (kHeads / kKvHeads), d);
          weights.push_back(std::exp(static_cast<double>(kScale) * score));
        }
        const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (int t = first; t < end; ++t)
          expected[static_cast<std::size_t>(t)] += weights[static_cast<std::size_t>(t - first)] / total;
      }
    std::vector<float> received(n_context, 1.0F);  // it adds
    cpu->add_received_attention(*cache_, 1, s, {kScale, window}, q, received);
    for (std::size_t t = 0; t < received.size(); ++t)
      EXPECT_NEAR(static_cast<double>(received[t]), expected[t], 1e-4 + 6 * rounding(GetParam()))
          << "key " << t << ", window " << window;
    const auto alone = backend(1);
    std::vector<float> again(n_context, 1.0F);
    alone->add_received_attention(*cache_, 1, s, {kScale, window}, q, again);
    EXPECT_EQ(received, again) << "the number of threads changes no bit";
  }
}

// The plain oracle: attention over the kept keys and values alone.
TEST_P(CachedTokens, AttentionAfterAMoveIsAttentionOverTheKeptTokens) {
  const auto cpu = backend(2);
  fill(*cpu);
  std::vector<int> kept;
  for (int t = 0; t < kTokens; ++t)
    if (t < 5 || t > 38 || t % 3 == 1) kept.push_back(t);
  std::vector<std::int32_t> from, to;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    from.push_back(slot(kept[i]));
    to.push_back(slot(static_cast<int>(i)));
  }
  cpu->move_cached_tokens(*cache_, from, to);
  const auto n = static_cast<std::int64_t>(kept.size());
  const Tensor q = random_tensor({1, kHeads, kHeadDim}, 5, 0.3F);
  for (int layer = 0; layer < kLayers; ++layer) {
    Tensor y(DType::kF32, {1, kHeads, kHeadDim});
    TensorView out = y.view();
    cpu->paged_attention(*cache_, layer, std::vector<KvSequence>{sequence(1, static_cast<int>(n))}, kScale, q,
                         out);
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const std::int64_t kv_head = h / (kHeads / kKvHeads);
      std::vector<double> weights;
      for (const int t : kept) {
        double score = 0;
        for (std::int64_t d = 0; d < kHeadDim; ++d)
          score += static_cast<double>(q.f32()[h * kHeadDim + d]) * key(layer, t, kv_head, d);
        weights.push_back(std::exp(static_cast<double>(kScale) * score));
      }
      const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (std::int64_t d = 0; d < kHeadDim; ++d) {
        double expected = 0;
        for (std::size_t i = 0; i < kept.size(); ++i)
          expected += weights[i] / total *
                      static_cast<double>(values_[static_cast<std::size_t>(layer)]
                                              .f32()[(kept[i] * kKvHeads + kv_head) * kHeadDim + d]);
        EXPECT_NEAR(static_cast<double>(y.f32()[h * kHeadDim + d]), expected, 1e-5 + 3 * rounding(GetParam()))
            << "layer " << layer << ", head " << h << ", element " << d;
      }
    }
  }
}

TEST_P(CachedTokens, SlotsThatWereNeverWrittenAreRefused) {
  const auto cpu = backend(1);
  fill(*cpu);
  const std::vector<std::int32_t> never = {1 * kPageTokens};
  const std::vector<std::int32_t> written = {slot(0)};
  std::vector<float> norms(kKvHeads);
  EXPECT_THROW(cpu->key_norms(*cache_, 0, never, norms), Error);
  EXPECT_THROW(cpu->move_cached_tokens(*cache_, never, written), Error);
  EXPECT_THROW(cpu->move_cached_tokens(*cache_, written, never), Error);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, CachedTokens, testing::ValuesIn(kAllTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace triptych
