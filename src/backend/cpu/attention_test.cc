// Attention and caches of the CPU backend against plain double-precision loops.
#include "backend/cpu/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "backend/cpu/backend_test_util.h"
#include "backend/cpu/kernels/kv_rows/kv_rows.h"
#include "base/error.h"
#include "base/half.h"
#include "base/memory_pool.h"

namespace triptych {
namespace {

// Plain attention by the definition; window: keys that a query sees at most, its last.
std::vector<double> attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionArgs& args,
                           std::int64_t window = std::numeric_limits<std::int64_t>::max()) {
  const std::int64_t h = q.shape().dim(1);
  const std::int64_t hkv = k.shape().dim(1);
  const std::int64_t d = q.shape().dim(2);
  std::vector<double> y(static_cast<std::size_t>(q.shape().numel()), 0.0);
  for (std::size_t s = 0; s + 1 < args.cu_q.size(); ++s) {
    const std::int64_t n_q = args.cu_q[s + 1] - args.cu_q[s];
    const std::int64_t n_k = args.cu_k[s + 1] - args.cu_k[s];
    for (std::int64_t i = 0; i < n_q; ++i) {
      for (std::int64_t head = 0; head < h; ++head) {
        const float* qr = q.f32() + ((args.cu_q[s] + i) * h + head) * d;
        double* out = y.data() + ((args.cu_q[s] + i) * h + head) * d;
        const std::int64_t visible = args.causal ? std::max<std::int64_t>(0, n_k - n_q + i + 1) : n_k;
        const std::int64_t first = std::max<std::int64_t>(0, visible - window);
        std::vector<double> weights;
        double top = -INFINITY;
        for (std::int64_t j = first; j < visible; ++j) {
          const float* kr = k.f32() + ((args.cu_k[s] + j) * hkv + head / (h / hkv)) * d;
          double dot = 0;
          for (std::int64_t c = 0; c < d; ++c) dot += static_cast<double>(qr[c]) * static_cast<double>(kr[c]);
          weights.push_back(dot * static_cast<double>(args.scale));
          top = std::max(top, weights.back());
        }
        double sum = 0;
        for (double& w : weights) sum += (w = std::exp(w - top));
        for (std::int64_t j = first; j < visible; ++j) {
          const float* vr = v.f32() + ((args.cu_k[s] + j) * hkv + head / (h / hkv)) * d;
          for (std::int64_t c = 0; c < d; ++c)
            out[c] += weights[static_cast<std::size_t>(j - first)] / sum * static_cast<double>(vr[c]);
        }
      }
    }
  }
  return y;
}

void expect_near(const Tensor& got, const std::vector<double>& expected, double tolerance, const char* what) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got.f32()[i]), expected[i], tolerance) << what << " at " << i;
}

TEST(CpuAttention, AttentionOfRaggedSegments) {
  const std::vector<std::int32_t> cu_q = {0, 3, 3, 150, 151, 171};
  const std::vector<std::int32_t> cu_k = {0, 130, 140, 287, 288, 298};
  const auto one = backend(1);
  const auto three = backend(3);
  for (const int hkv : {1, 2, 6}) {
    for (const int d : {24, 64, 80}) {
      for (const bool causal : {false, true}) {
        const Tensor q = random_tensor({171, 6, d}, 1);
        const Tensor k = random_tensor({298, hkv, d}, 2);
        const Tensor v = random_tensor({298, hkv, d}, 3);
        const AttentionArgs args = attention_args(q, k, v, cu_q, cu_k, causal);
        Tensor y(DType::kF32, {171, 6, d});
        TensorView view = y.view();
        one->attention(args, view);
        // Scores of size 1 and values of size up to 5.
        expect_near(y, attend(q, k, v, args), 5 * (d + 32) * 0x1p-24 * 4, "attention");
        Tensor again(DType::kF32, {171, 6, d});
        view = again.view();
        three->attention(args, view);
        ASSERT_EQ(std::memcmp(y.f32(), again.f32(), static_cast<std::size_t>(y.shape().numel()) * 4), 0);
      }
    }
  }
}

TEST(CpuAttention, AttentionOverViewsOfOneFusedTensor) {
  const auto cpu = backend(2);
  const Tensor qkv = random_tensor({50, 3 * 4 * 16}, 1);
  const auto part = [&](int i) { return qkv.view().cols(i * 64, (i + 1) * 64).split_last(4, 16); };
  const std::vector<std::int32_t> cu = {0, 50};
  AttentionArgs args;
  args.q = part(0);
  args.k = part(1);
  args.v = part(2);
  args.cu_q = cu;
  args.cu_k = cu;
  args.scale = 0.25F;
  Tensor y(DType::kF32, {50, 4, 16});
  TensorView view = y.view();
  cpu->attention(args, view);
  const auto dense = [&](int i) { return Tensor::copy_of(part(i)); };
  expect_near(y, attend(dense(0), dense(1), dense(2), args), 1e-5, "fused");
}

// The cache, filled in two steps, against plain causal attention.
TEST(CpuAttention, PagedAttentionFollowsTheCache) {
  for (const int n_threads : {1, 3}) {
    const auto cpu = backend(n_threads);
    for (const int page_tokens : {5, 64}) {
      const int hkv = 2;
      const int d = 40;
      const int n = 150;
      const auto cache = cpu->make_kv_cache({3, hkv, d, page_tokens, 80, KvDType::kF32});
      const Tensor q = random_tensor({n, 4, d}, 1);
      const Tensor k = random_tensor({n, hkv, d}, 2);
      const Tensor v = random_tensor({n, hkv, d}, 3);
      std::vector<std::int32_t> pages;
      for (int i = 0; i < (n + page_tokens - 1) / page_tokens; ++i) pages.push_back(79 - 2 * i);
      const auto slot = [&](int t) {
        return pages[static_cast<std::size_t>(t / page_tokens)] * page_tokens + t % page_tokens;
      };
      Tensor y(DType::kF32, {n, 4, d});
      for (const auto& [begin, end] :
           std::vector<std::pair<int, int>>{{0, 100}, {100, 101}, {101, 103}, {103, n}}) {
        std::vector<std::int32_t> slots;
        for (int t = begin; t < end; ++t) slots.push_back(slot(t));
        cpu->kv_append(*cache, 1, k.view().rows(begin, end), v.view().rows(begin, end), slots);
        KvSequence s;
        s.n_rows = end - begin;
        s.n_context = end;
        s.pages = pages;
        TensorView out = y.view().rows(begin, end);
        cpu->paged_attention(*cache, 1, {&s, 1}, 0.2F, q.view().rows(begin, end), out);
      }
      const std::vector<std::int32_t> cu = {0, n};
      AttentionArgs args;
      args.cu_q = cu;
      args.cu_k = cu;
      args.scale = 0.2F;
      args.causal = true;
      expect_near(y, attend(q, k, v, args), 5e-5, "paged");
    }
  }
}

// What a quantized cache gives back of k and v, by the codec's scalar version; the first key of a page
// decides its offsets.
void through_cache(kernels::KvCode code, int page_tokens, Tensor& k, Tensor& v) {
  const auto& codec = kernels::kKvRowScalar;
  const std::int64_t d = k.shape().dim(2);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(kernels::kv_row_bytes(code, d)));
  for (std::int64_t h = 0; h < k.shape().dim(1); ++h) {
    std::vector<kernels::KvOffset> offsets(static_cast<std::size_t>(kernels::kv_max_offsets(d)));
    for (std::int64_t t = 0; t < k.shape().dim(0); ++t) {
      float* key = k.f32() + (t * k.shape().dim(1) + h) * d;
      float* value = v.f32() + (t * k.shape().dim(1) + h) * d;
      if (t % page_tokens == 0) codec.choose_offsets(d, key, offsets.data());
      for (const auto& one : offsets) key[one.channel] -= bf16_to_f32(one.value);
      codec.encode(code, d, key, nullptr, row.data());
      codec.decode(code, d, row.data(), nullptr, key);
      for (const auto& one : offsets) key[one.channel] += bf16_to_f32(one.value);
      codec.encode(code, d, value, nullptr, row.data());
      codec.decode(code, d, row.data(), nullptr, value);
    }
  }
}

// What a page of 64 tokens takes, offsets and all.
TEST(CpuAttention, BytesOfQuantizedCaches) {
  const auto cpu = backend(1);
  const auto bytes = [&](KvDType dtype, int head_dim) {
    return static_cast<double>(cpu->make_kv_cache({24, 2, head_dim, 64, 10, dtype})->bytes());
  };
  for (const int head_dim : {64, 128, 256}) {
    const double half = bytes(KvDType::kF16, head_dim);
    EXPECT_LE(bytes(KvDType::kInt8, head_dim), 0.52 * half) << head_dim;
    EXPECT_LE(bytes(KvDType::kFp8, head_dim), 0.52 * half) << head_dim;
    EXPECT_LE(bytes(KvDType::kInt4, head_dim), 0.30 * half) << head_dim;
  }
}

TEST(CpuAttention, QuantizedCachesHoldWhatTheirRowsSay) {
  for (const auto& [dtype, code] :
       {std::pair(KvDType::kInt8, kernels::KvCode::kInt8), std::pair(KvDType::kFp8, kernels::KvCode::kFp8),
        std::pair(KvDType::kInt4, kernels::KvCode::kInt4)})
    for (const int page_tokens : {5, 64})
      for (const int d : {40, 64, 128}) {
        const auto cpu = backend(2);
        const int hkv = 2;
        const int n = 330;
        const auto cache = cpu->make_kv_cache({3, hkv, d, page_tokens, 160, dtype});
        EXPECT_LE(static_cast<std::int64_t>(cache->bytes()),
                  3 * 160 * hkv * (2 * page_tokens * kv_row_size_bytes(dtype, d) + d / 4));
        const Tensor q = random_tensor({n, 4, d}, 1);
        Tensor k = random_tensor({n, hkv, d}, 2);
        for (std::int64_t t = 0; t < n; ++t) k.f32()[t * hkv * d + 7] += 60.0F;  // a biased channel of head 0
        Tensor v = random_tensor({n, hkv, d}, 3);
        std::vector<std::int32_t> pages;
        for (int i = 0; i < (n + page_tokens - 1) / page_tokens; ++i) pages.push_back(159 - 2 * i);
        Tensor y(DType::kF32, {n, 4, d});
        // Steps begin in the middle of pages; those of few rows are computed as floats.
        for (const auto& [begin, end] :
             std::vector<std::pair<int, int>>{{0, 300}, {300, 301}, {301, 303}, {303, n}}) {
          std::vector<std::int32_t> slots;
          for (int t = begin; t < end; ++t)
            slots.push_back(pages[static_cast<std::size_t>(t / page_tokens)] * page_tokens + t % page_tokens);
          cpu->kv_append(*cache, 1, k.view().rows(begin, end), v.view().rows(begin, end), slots);
          KvSequence s;
          s.n_rows = end - begin;
          s.n_context = end;
          s.pages = pages;
          TensorView out = y.view().rows(begin, end);
          cpu->paged_attention(*cache, 1, {&s, 1}, 0.1F, q.view().rows(begin, end), out);
        }
        through_cache(code, page_tokens, k, v);
        const std::vector<std::int32_t> cu = {0, n};
        AttentionArgs args;
        args.cu_q = cu;
        args.cu_k = cu;
        args.scale = 0.1F;
        args.causal = true;
        const auto expected = attend(q, k, v, args);
        // 8-bit queries: an error of 1/254 of the largest of a row for each of d products, which average out.
        const bool rounds_queries = cpu->attends_in_int8(dtype);
        expect_near(y, expected, rounds_queries ? 0.08 : 1e-4, to_string(dtype).data());
        double square = 0;
        double error = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          square += expected[i] * expected[i];
          error += std::pow(static_cast<double>(y.f32()[i]) - expected[i], 2);
        }
        EXPECT_LT(error, square * 1e-4) << to_string(dtype) << " " << d;  // 40 dB
      }
}

// A prompt in pieces and single tokens, in windows shorter than a page, than a block of keys and than the
// prompt, and one that reaches to its end.
TEST(CpuAttention, WindowsHideWhatLiesBefore) {
  const int hkv = 2;
  const int d = 40;
  const int n = 700;
  const int page_tokens = 64;
  struct Path {
    KvDType dtype;
    bool tiles;
  };
  for (const auto& [dtype, tiles] :
       {Path{KvDType::kF32, false}, Path{KvDType::kInt8, false}, Path{KvDType::kInt8, true}})
    for (const int window : {1, 5, 64, 150, 300, 699, 2000}) {
      CpuBackendOptions options;
      options.n_threads = 2;
      if (tiles) options.tuning = CpuTuning{.emulated_tiles = true};
      const auto cpu = make_cpu_backend(options);
      const auto cache = cpu->make_kv_cache({2, hkv, d, page_tokens, 20, dtype});
      const Tensor q = random_tensor({n, 4, d}, 1);
      Tensor k = random_tensor({n, hkv, d}, 2);
      Tensor v = random_tensor({n, hkv, d}, 3);
      std::vector<std::int32_t> pages;
      for (int i = 0; i < (n + page_tokens - 1) / page_tokens; ++i) pages.push_back(19 - i);
      Tensor y(DType::kF32, {n, 4, d});
      for (const auto& [begin, end] :
           std::vector<std::pair<int, int>>{{0, 400}, {400, 401}, {401, 407}, {407, 690}, {690, n}}) {
        std::vector<std::int32_t> slots;
        for (int t = begin; t < end; ++t)
          slots.push_back(pages[static_cast<std::size_t>(t / page_tokens)] * page_tokens + t % page_tokens);
        cpu->kv_append(*cache, 1, k.view().rows(begin, end), v.view().rows(begin, end), slots);
        KvSequence s;
        s.n_rows = end - begin;
        s.n_context = end;
        s.pages = pages;
        TensorView out = y.view().rows(begin, end);
        cpu->paged_attention(*cache, 1, {&s, 1}, {0.1F, window}, q.view().rows(begin, end), out);
      }
      if (dtype == KvDType::kInt8) through_cache(kernels::KvCode::kInt8, page_tokens, k, v);
      const std::vector<std::int32_t> cu = {0, n};
      AttentionArgs args;
      args.cu_q = cu;
      args.cu_k = cu;
      args.scale = 0.1F;
      args.causal = true;
      const bool rounds_queries = cpu->attends_in_int8(dtype);
      expect_near(y, attend(q, k, v, args, window), rounds_queries ? 0.08 : 1e-4,
                  fmt::format("{}{} in a window of {}", to_string(dtype), tiles ? " over tiles" : "", window)
                      .c_str());
    }
}

TEST(CpuAttention, PagesTakeMemoryWhenWrittenAndGiveItBack) {
  const auto cpu = backend(1);
  const Tensor k = random_tensor({20, 2, 24}, 1);
  const Tensor q = random_tensor({1, 2, 24}, 2);
  const Tensor y(DType::kF32, {1, 2, 24});
  TensorView out = y.view();
  // A page that is a slab's object, and one that is a span.
  for (const auto& [n_layers, dtype] : {std::pair(4, KvDType::kInt8), std::pair(700, KvDType::kF16)}) {
    const auto cache = cpu->make_kv_cache({n_layers, 2, 24, 16, 5, dtype});
    const std::size_t page_bytes = cache->bytes() / 5;
    const auto granted = [] { return MemoryPool::process().stats().granted_bytes; };
    const std::size_t before = granted();
    std::vector<std::int32_t> slots(20);
    std::iota(slots.begin(), slots.end(), 20);  // pages 1 and 2
    cpu->kv_append(*cache, 1, k.view(), k.view(), slots);
    const std::size_t two = granted();
    EXPECT_GE(two - before, 2 * page_bytes);
    EXPECT_LT(two - before, 3 * page_bytes);
    cpu->kv_append(*cache, 2, k.view(), k.view(), slots);
    EXPECT_EQ(granted(), two) << "the memory of a page is for all layers";

    KvSequence s;
    s.n_rows = 1;
    s.n_context = 17;
    const std::vector<std::int32_t> pages = {1, 0};
    s.pages = pages;
    EXPECT_THAT(
        [&] {
          cpu->paged_attention(*cache, 1, {&s, 1}, 1.0F, q, out);
        },
        testing::ThrowsMessage<Error>(testing::HasSubstr("nothing was written to page 0")));

    const std::vector<std::int32_t> given_back = {1, 3};  // 3 has no memory
    cache->release_pages(given_back);
    EXPECT_EQ(granted() - before, (two - before) / 2);
    cache->release_pages(std::vector<std::int32_t>{2});
    EXPECT_EQ(granted(), before);
  }
}

// All layers and, of quantized rows, the offsets of keys: attention over the copy gives the same bits, also
// after the original is gone.
TEST(CpuAttention, ACopiedPageHoldsTheSame) {
  const auto cpu = backend(1);
  const Tensor k = random_tensor({20, 2, 24}, 1);
  const Tensor v = random_tensor({20, 2, 24}, 2);
  const Tensor q = random_tensor({1, 2, 24}, 3);
  for (const KvDType dtype : {KvDType::kF32, KvDType::kF16, KvDType::kInt8, KvDType::kInt4}) {
    const auto cache = cpu->make_kv_cache({2, 2, 24, 16, 5, dtype});
    std::vector<std::int32_t> slots(20);
    std::iota(slots.begin(), slots.end(), 16);  // pages 1 and 2
    const auto attend = [&](const std::vector<std::int32_t>& pages) {
      KvSequence s;
      s.n_rows = 1;
      s.n_context = 20;
      s.pages = pages;
      std::vector<float> all;
      for (int layer = 0; layer < 2; ++layer) {
        const Tensor y(DType::kF32, {1, 2, 24});
        TensorView out = y.view();
        cpu->paged_attention(*cache, layer, {&s, 1}, 1.0F, q, out);
        all.insert(all.end(), y.f32(), y.f32() + 48);
      }
      return all;
    };
    for (int layer = 0; layer < 2; ++layer)
      cpu->kv_append(*cache, layer, layer == 0 ? k.view() : v.view(), v.view(), slots);
    const std::vector<float> before = attend({1, 2});
    cache->copy_page(2, 4);
    cache->copy_page(1, 3);
    cache->release_pages(std::vector<std::int32_t>{1, 2});
    EXPECT_EQ(attend({3, 4}), before);
    EXPECT_THROW(cache->copy_page(1, 0), Error) << "nothing was written there";
  }
}

TEST(CpuAttention, AttentionInEightBitsIsNear) {
  CpuBackendOptions options;
  options.n_threads = 2;
  options.policy.int8_attention = true;
  const auto cpu = make_cpu_backend(options);
  const std::vector<std::int32_t> cu_q = {0, 3, 3, 150, 151, 171};
  const std::vector<std::int32_t> cu_k = {0, 430, 440, 687, 688, 798};
  for (const int hkv : {1, 2, 6})
    for (const int d : {24, 64, 80, 128})
      for (const bool causal : {false, true}) {
        const Tensor q = random_tensor({171, 6, d}, 1);
        Tensor k = random_tensor({798, hkv, d}, 2);
        // Large in every key: the softmax does not see it, and neither may the rounding.
        for (std::int64_t t = 0; t < 798 * hkv; ++t) k.f32()[t * d + 3] += 80.0F;
        const Tensor v = random_tensor({798, hkv, d}, 3);
        const AttentionArgs args = attention_args(q, k, v, cu_q, cu_k, causal);
        Tensor y(DType::kF32, {171, 6, d});
        TensorView view = y.view();
        cpu->attention(args, view);
        const auto expected = attend(q, k, v, args);
        double square = 0;
        double error = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          square += expected[i] * expected[i];
          error += std::pow(static_cast<double>(y.f32()[i]) - expected[i], 2);
        }
        if (cpu->attends_in_int8(std::nullopt)) {
          EXPECT_GT(error, square * 1e-9) << "nothing was rounded";
        }
        EXPECT_LT(error, square * 3e-4) << "heads " << hkv << " of " << d << " causal " << causal;
      }
}

// Other tiles of rows and of keys, the same integers: no more than the last bits of sums of floats differ,
// and where vectors have fused multiply-adds not those.
TEST(CpuAttention, AttentionInEightBitsIsTheSameOverTiles) {
  const std::vector<std::int32_t> cu_q = {0, 3, 60, 171};
  const std::vector<std::int32_t> cu_k = {0, 430, 440, 798};
  for (const int d : {24, 64, 80})
    for (const bool causal : {false, true}) {
      const Tensor q = random_tensor({171, 4, d}, 1, 2.0F);
      const Tensor k = random_tensor({798, 2, d}, 2);
      const Tensor v = random_tensor({798, 2, d}, 3);
      const AttentionArgs args = attention_args(q, k, v, cu_q, cu_k, causal);
      std::vector<float> without, with;
      for (const bool tiles : {false, true}) {
        CpuBackendOptions options;
        options.n_threads = 2;
        options.policy.int8_attention = true;
        options.tuning = CpuTuning{.tile_rows = tiles ? 9 : 1'000'000, .emulated_tiles = tiles};
        const Tensor y(DType::kF32, {171, 4, d});
        TensorView view = y.view();
        make_cpu_backend(options)->attention(args, view);
        (tiles ? with : without).assign(y.f32(), y.f32() + y.view().numel());
      }
      for (std::size_t i = 0; i < with.size(); ++i)
        ASSERT_NEAR(with[i], without[i], 1e-5F * (1 + std::fabs(without[i])))
            << "width " << d << " causal " << causal << " at " << i;
    }
}

// Blocks of queries are larger where few threads share them, and means of keys are sums of pieces.
TEST(CpuAttention, AttentionInEightBitsHasTheSameBitsForAnyNumberOfThreads) {
  const std::vector<std::int32_t> cu = {0, 577, 800};
  const Tensor q = random_tensor({800, 4, 64}, 1);
  const Tensor k = random_tensor({800, 4, 64}, 2);
  const Tensor v = random_tensor({800, 4, 64}, 3);
  AttentionArgs args;
  args.q = q;
  args.k = k;
  args.v = v;
  args.cu_q = cu;
  args.cu_k = cu;
  args.scale = 0.125F;
  std::vector<float> first;
  for (const int n_threads : {1, 2, 7}) {
    CpuBackendOptions options;
    options.n_threads = n_threads;
    options.policy.int8_attention = true;
    const Tensor y(DType::kF32, {800, 4, 64});
    TensorView view = y.view();
    make_cpu_backend(options)->attention(args, view);
    const std::vector<float> now(y.f32(), y.f32() + y.view().numel());
    if (first.empty()) first = now;
    EXPECT_EQ(now, first) << n_threads << " threads";
  }
}

TEST(CpuAttention, SeveralSequencesInOneStep) {
  const auto cpu = backend(2);
  const int d = 32;
  const auto cache = cpu->make_kv_cache({1, 1, d, 16, 40, KvDType::kF16});
  // Sequence a: 20 new tokens on 0 old; b: 1 new on 37 old; rows in the order b, a.
  const Tensor k = random_tensor({58, 1, d}, 2);
  const Tensor v = random_tensor({58, 1, d}, 3);
  std::vector<std::int32_t> pages_a = {7, 3};
  std::vector<std::int32_t> pages_b = {1, 0, 39};
  std::vector<std::int32_t> slots;
  for (int t = 0; t < 38; ++t) slots.push_back(pages_b[static_cast<std::size_t>(t / 16)] * 16 + t % 16);
  for (int t = 0; t < 20; ++t) slots.push_back(pages_a[static_cast<std::size_t>(t / 16)] * 16 + t % 16);
  cpu->kv_append(*cache, 0, k, v, slots);
  const Tensor q = random_tensor({21, 2, d}, 1);
  KvSequence sequences[2];
  sequences[0] = {0, 1, 38, pages_b};
  sequences[1] = {1, 20, 20, pages_a};
  Tensor y(DType::kF32, {21, 2, d});
  TensorView view = y.view();
  cpu->paged_attention(*cache, 0, sequences, 0.3F, q, view);
  const std::vector<std::int32_t> cu_q = {0, 1, 21};
  const std::vector<std::int32_t> cu_k = {0, 38, 58};
  AttentionArgs args;
  args.cu_q = cu_q;
  args.cu_k = cu_k;
  args.scale = 0.3F;
  args.causal = true;
  // float16 keys and values: relative error 2^-11 of scores of size 2 and values of size 3.
  expect_near(y, attend(q, k, v, args), 2e-2, "two sequences");
}

}  // namespace
}  // namespace triptych
