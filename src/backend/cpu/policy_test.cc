#include "backend/cpu/policy.h"

#include <gtest/gtest.h>

namespace triptych::cpu {
namespace {

constexpr CpuFeatures kAvx2 = Isa::kAvx2;
constexpr CpuFeatures kBf16 = Isa::kAvx512Bf16;

constexpr CpuTuning kGains = {.bf16_gains = true};

TEST(CpuPolicy, FloatWeightsAreStreamedForFewRows) {
  const CpuPolicy policy;
  EXPECT_EQ(linear_algorithm(1, true, policy, kGains), LinearAlgorithm::kStreamed);
  EXPECT_EQ(linear_algorithm(24, true, policy, kGains), LinearAlgorithm::kStreamed);
  EXPECT_EQ(linear_algorithm(25, true, policy, kGains), LinearAlgorithm::kTiled);
}

TEST(CpuPolicy, RoundsToBf16WhereAllAgree) {
  CpuPolicy policy;
  policy.bf16_activations = true;
  EXPECT_EQ(linear_algorithm(24, true, policy, kGains), LinearAlgorithm::kStreamed);
  EXPECT_EQ(linear_algorithm(25, true, policy, kGains), LinearAlgorithm::kTiledBf16);
  EXPECT_EQ(linear_algorithm(25, false, policy, kGains), LinearAlgorithm::kTiled) << "no pairs of bfloat16";
  EXPECT_EQ(linear_algorithm(25, true, policy, {}), LinearAlgorithm::kTiled) << "no gain";
}

TEST(CpuPolicy, Int4PanelsAreRequantizedForManyRows) {
  CpuPolicy policy;
  const CpuTuning tuning = {.int4_streamed_rows = 12};
  EXPECT_EQ(int4_algorithm(12, policy, tuning), Int4Algorithm::kStreamed);
  EXPECT_EQ(int4_algorithm(13, policy, tuning), Int4Algorithm::kRequantized);
  policy.exact_groups = true;
  EXPECT_EQ(int4_algorithm(5000, policy, tuning), Int4Algorithm::kStreamed);
}

TEST(CpuPolicy, Int8AttentionGainsByDotProductsOfBytes) {
  EXPECT_FALSE(gains_by_int8_attention({}));
  EXPECT_FALSE(gains_by_int8_attention(Isa::kNeon));
  EXPECT_TRUE(gains_by_int8_attention(Isa::kDotprod));
  EXPECT_TRUE(gains_by_int8_attention(Isa::kI8mm));
  EXPECT_TRUE(gains_by_int8_attention(kAvx2));
  EXPECT_FALSE(gains_by_int8_attention(Isa::kAvx512));
  EXPECT_FALSE(gains_by_int8_attention(CpuFeatures(Isa::kAvx512) | CpuFeatures{CpuFeature::kAvxVnni}));
  EXPECT_TRUE(gains_by_int8_attention(Isa::kAvx512Vnni));
}

TEST(CpuPolicy, AttentionOfASegmentGoesByItsSizes) {
  CpuPolicy policy;
  const auto algorithm = [&](std::int64_t n_rows, std::int64_t n_keys, CpuFeatures features) {
    return segment_attention_algorithm(n_rows, n_keys, features, policy);
  };
  EXPECT_EQ(algorithm(9, 128, kAvx2), AttentionAlgorithm::kFloat) << "not asked for";
  policy.int8_attention = true;
  for (const bool batch_invariant : {false, true}) {
    policy.batch_invariant = batch_invariant;
    EXPECT_EQ(algorithm(9, 128, kAvx2), AttentionAlgorithm::kInt8);
    EXPECT_EQ(algorithm(9, 128, Isa::kAvx512), AttentionAlgorithm::kFloat);
    EXPECT_EQ(algorithm(8, 128, kAvx2), AttentionAlgorithm::kFloat);
    EXPECT_EQ(algorithm(9, 127, kAvx2), AttentionAlgorithm::kFloat);
  }
}

TEST(CpuPolicy, BlocksOfAnInt8CacheNeedAFewRows) {
  const CpuPolicy policy;
  EXPECT_EQ(paged_attention_algorithm(true, 1, kAvx2, policy), AttentionAlgorithm::kInt8);
  EXPECT_EQ(paged_attention_algorithm(false, 8, kAvx2, policy), AttentionAlgorithm::kFloat);
  EXPECT_EQ(block_attention_algorithm(AttentionAlgorithm::kInt8, 4, policy), AttentionAlgorithm::kInt8);
  EXPECT_EQ(block_attention_algorithm(AttentionAlgorithm::kInt8, 3, policy), AttentionAlgorithm::kFloat);
  EXPECT_EQ(block_attention_algorithm(AttentionAlgorithm::kFloat, 4, policy), AttentionAlgorithm::kFloat);
}

TEST(CpuPolicy, BatchInvariantChoicesDoNotSeeTheNumberOfRows) {
  CpuPolicy policy;
  policy.batch_invariant = true;
  policy.bf16_activations = true;
  for (const CpuFeatures features : {CpuFeatures(), kAvx2, kBf16, CpuFeatures(Isa::kI8mm)})
    for (const std::int64_t n : {1, 4, 13, 25, 49, 5000}) {
      EXPECT_EQ(linear_algorithm(n, true, policy, kGains), LinearAlgorithm::kStreamed);
      EXPECT_EQ(int4_algorithm(n, policy, kGains), Int4Algorithm::kStreamed);
      for (const std::int64_t group : {1, 7}) {
        const AttentionAlgorithm whole = paged_attention_algorithm(true, group, features, policy);
        EXPECT_EQ(whole == AttentionAlgorithm::kInt8, group == 7 && gains_by_int8_attention(features));
        EXPECT_EQ(block_attention_algorithm(whole, n * group, policy), whole);
      }
    }
}

}  // namespace
}  // namespace triptych::cpu
