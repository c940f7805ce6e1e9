// The arithmetic of costs by hand. What runs of models count is compared in benchmark/bench_test.cc.
#include "report/cost_model.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

TEST(Roofline, EightBitWorkCountsAgainstItsOwnLimit) {
  const MachineLimits limits{.n_threads = 1,
                             .fp32_flops_per_s = 100,
                             .read_bytes_per_s = 10,
                             .int8_ops_per_s = 400,
                             .bf16_flops_per_s = 0};
  EXPECT_DOUBLE_EQ(roofline_seconds({.flops = 100, .int8_ops = 400, .bytes = 1}, limits), 2.0);
  EXPECT_DOUBLE_EQ(roofline_seconds({.flops = 0, .int8_ops = 400, .bytes = 50}, limits), 5.0);
}

TEST(Roofline, TheSlowerOfComputingAndReading) {
  const MachineLimits limits{.n_threads = 1, .fp32_flops_per_s = 100.0, .read_bytes_per_s = 10.0};
  EXPECT_DOUBLE_EQ(roofline_seconds({.flops = 200.0, .bytes = 10.0}, limits), 2.0);
  EXPECT_DOUBLE_EQ(roofline_seconds({.flops = 100.0, .bytes = 40.0}, limits), 4.0);
  EXPECT_DOUBLE_EQ(roofline_share({.flops = 200.0, .bytes = 10.0}, limits, 4.0), 0.5);
}

TEST(CostObserver, CountsSegmentsOfAnAttentionByThemselves) {
  std::vector<float> q(5 * 2 * 4);
  const std::int32_t cu_q[] = {0, 2, 5};
  const std::int32_t cu_k[] = {0, 2, 5};
  const TensorView view(q.data(), DType::kF32, {5, 2, 4});
  CostObserver observer;
  observer.on_attention({.q = view, .k = view, .v = view, .cu_q = cu_q, .cu_k = cu_k});
  EXPECT_DOUBLE_EQ(observer.cost().flops, 4.0 * (2 * 2 + 3 * 3) * 2 * 4);
  CostObserver in_int8(true);
  in_int8.on_attention({.q = view, .k = view, .v = view, .cu_q = cu_q, .cu_k = cu_k});
  EXPECT_DOUBLE_EQ(in_int8.cost().flops, 0.0);
  EXPECT_DOUBLE_EQ(in_int8.cost().int8_ops, observer.cost().flops);
}

}  // namespace
}  // namespace triptych
