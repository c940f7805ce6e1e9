#include "backend/cpu/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace triptych {
namespace {

// Set by ctest where an emulator runs the tests: speeds mean nothing there.
bool is_emulated() { return std::getenv("TRIPTYCH_EMULATED") != nullptr; }

TEST(MachineProbe, MeasuresWhatTheInstructionSetHas) {
  MachineProbe probe(2, active_features(), std::size_t{8} << 20);
  EXPECT_EQ(probe.n_threads(), 2);
  const MeasuredLimits measured = probe.measure(3);
  const MachineLimits& limits = measured.median;
  EXPECT_EQ(limits.n_threads, 2);
  EXPECT_LE(measured.lowest.read_bytes_per_s, limits.read_bytes_per_s);
  EXPECT_GE(measured.highest.read_bytes_per_s, limits.read_bytes_per_s);
  EXPECT_LE(measured.lowest.int8_ops_per_s, measured.highest.int8_ops_per_s);
  // Any machine of this century, and no machine known: a factor of a thousand off is a wrong unit.
  EXPECT_GT(limits.fp32_flops_per_s, is_emulated() ? 1e6 : 1e8);
  EXPECT_LT(limits.fp32_flops_per_s, 1e13);
  EXPECT_GT(limits.read_bytes_per_s, is_emulated() ? 1e6 : 1e8);
  EXPECT_LT(limits.read_bytes_per_s, 1e13);
  const CpuFeatures features = active_features();
  EXPECT_EQ(limits.int8_ops_per_s > 0, features.has_all(Isa::kAvx2) || features.has_all(Isa::kDotprod));
  EXPECT_EQ(limits.bf16_flops_per_s > 0, features.has_all(Isa::kAvx512Bf16));
}

TEST(MachineProbe, ReadsPartsOfAnySizeAgain) {
  MachineProbe probe(1, active_features(), std::size_t{1} << 20);
  EXPECT_GT(probe.read_again(1).wall, 0) << "less than a unit";
  EXPECT_GT(probe.read_again(16 * 1024).wall, 0);
  EXPECT_GT(probe.read_again(std::size_t{1} << 40).wall, 0) << "more than the buffer holds";
}

TEST(MachineProbe, WiderInstructionSetsAreNotSlower) {
  if (active_isa() == Isa::kScalar || is_emulated()) GTEST_SKIP() << "needs vectors, not emulated";
  MachineProbe scalar(1, Isa::kScalar, std::size_t{1} << 20);
  MachineProbe wide(1, active_features(), std::size_t{1} << 20);
  EXPECT_GT(wide.measure(3).highest.fp32_flops_per_s, 2 * scalar.measure(3).highest.fp32_flops_per_s);
}

}  // namespace
}  // namespace triptych
