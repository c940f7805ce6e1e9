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

TEST(CpuPolicy, AttentionOverSegmentsGoesByTheirAverage) {
  CpuPolicy policy;
  const SegmentShape large = {2, 17, 256, 8};
  EXPECT_EQ(segment_attention_algorithm(large, kAvx2, policy), AttentionAlgorithm::kFloat) << "not asked for";
  policy.int8_attention = true;
  EXPECT_EQ(segment_attention_algorithm(large, kAvx2, policy), AttentionAlgorithm::kInt8);
  EXPECT_EQ(segment_attention_algorithm(large, Isa::kAvx512, policy), AttentionAlgorithm::kFloat);
  EXPECT_EQ(segment_attention_algorithm({2, 16, 256, 8}, kAvx2, policy), AttentionAlgorithm::kFloat);
  EXPECT_EQ(segment_attention_algorithm({2, 17, 255, 8}, kAvx2, policy), AttentionAlgorithm::kFloat);
}

TEST(CpuPolicy, BlocksOfAnInt8CacheNeedAFewRows) {
  const CpuPolicy policy;
  EXPECT_EQ(paged_attention_algorithm(true, kAvx2, policy), AttentionAlgorithm::kInt8);
  EXPECT_EQ(paged_attention_algorithm(false, kAvx2, policy), AttentionAlgorithm::kFloat);
  EXPECT_EQ(block_attention_algorithm(AttentionAlgorithm::kInt8, 4, policy), AttentionAlgorithm::kInt8);
  EXPECT_EQ(block_attention_algorithm(AttentionAlgorithm::kInt8, 3, policy), AttentionAlgorithm::kFloat);
  EXPECT_EQ(block_attention_algorithm(AttentionAlgorithm::kFloat, 4, policy), AttentionAlgorithm::kFloat);
  EXPECT_EQ(float_attention_rows(128, 8, policy), 128);
}

TEST(CpuPolicy, BatchInvariantChoicesDoNotSeeTheNumberOfRows) {
  CpuPolicy policy;
  policy.batch_invariant = true;
  policy.bf16_activations = true;
  policy.int8_attention = true;
  for (const CpuFeatures features : {CpuFeatures(), kAvx2, kBf16, CpuFeatures(Isa::kI8mm)})
    for (const std::int64_t n : {1, 4, 13, 25, 49, 5000}) {
      EXPECT_EQ(linear_algorithm(n, true, policy, kGains), LinearAlgorithm::kStreamed);
      EXPECT_EQ(int4_algorithm(n, policy, kGains), Int4Algorithm::kStreamed);
      EXPECT_EQ(segment_attention_algorithm({1, n, 1000, 8}, features, policy), AttentionAlgorithm::kFloat);
      EXPECT_EQ(paged_attention_algorithm(true, features, policy), AttentionAlgorithm::kFloat);
    }
  EXPECT_EQ(float_attention_rows(128, 8, policy), 8);
}

}  // namespace
}  // namespace triptych::cpu
