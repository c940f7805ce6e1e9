#include "backend/cpu/probe.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

TEST(MachineProbe, MeasuresWhatTheInstructionSetHas) {
  MachineProbe probe(2, active_isa(), std::size_t{8} << 20);
  EXPECT_EQ(probe.n_threads(), 2);
  const MachineLimits limits = probe.measure(2);
  // Any machine of this century, and no machine known: a factor of a thousand off is a wrong unit.
  EXPECT_GT(limits.fp32_flops_per_s, 1e8);
  EXPECT_LT(limits.fp32_flops_per_s, 1e13);
  EXPECT_GT(limits.read_bytes_per_s, 1e8);
  EXPECT_LT(limits.read_bytes_per_s, 1e13);
  EXPECT_EQ(limits.int8_ops_per_s > 0, active_isa() >= Isa::kAvx512Vnni);
  EXPECT_EQ(limits.bf16_flops_per_s > 0, active_isa() >= Isa::kAvx512Bf16);
}

TEST(MachineProbe, WiderInstructionSetsAreNotSlower) {
  if (active_isa() < Isa::kAvx2) GTEST_SKIP() << "needs AVX2";
  MachineProbe scalar(1, Isa::kScalar, std::size_t{1} << 20);
  MachineProbe wide(1, active_isa(), std::size_t{1} << 20);
  EXPECT_GT(wide.measure(3).fp32_flops_per_s, 2 * scalar.measure(3).fp32_flops_per_s);
}

}  // namespace
}  // namespace triptych
