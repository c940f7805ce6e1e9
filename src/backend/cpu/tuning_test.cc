#include "backend/cpu/tuning.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"

namespace triptych {
namespace {

constexpr CpuFeatures kAvx2 = Isa::kAvx2;
constexpr CpuFeatures kBf16 = Isa::kAvx512Bf16;
constexpr CpuFeatures kAmx = Isa::kAmxBf16;

// Rates that were measured on one thread.
constexpr TuningProbe kZen4 = {.fp32_flops_per_s = 116e9,
                               .bf16_flops_per_s = 232e9,
                               .int8_ops_per_s = 464e9,
                               .tile_int8_ops_per_s = 0,
                               .second_cache_bytes = 1 << 20};
constexpr TuningProbe kIntelWithAmx = {.fp32_flops_per_s = 126e9,
                                       .bf16_flops_per_s = 62e9,
                                       .int8_ops_per_s = 400e9,
                                       .tile_int8_ops_per_s = 4.8e12,
                                       .second_cache_bytes = 2 << 20};

TEST(CpuTuning, Bf16IsNoGainForHavingTheInstruction) {
  EXPECT_TRUE(tuning_from(kBf16, kZen4).bf16_gains);
  EXPECT_FALSE(tuning_from(kBf16, kIntelWithAmx).bf16_gains);
  TuningProbe tiles = kIntelWithAmx;
  tiles.bf16_flops_per_s = 2.3e12;
  EXPECT_TRUE(tuning_from(kAmx, tiles).bf16_gains);
  EXPECT_FALSE(tuning_from(kBf16, {}).bf16_gains) << "not measured";
}

TEST(CpuTuning, Int4PanelsAreMadeAnewByInstructionSet) {
  EXPECT_EQ(tuning_from({}, {}).int4_streamed_rows, 12);
  EXPECT_EQ(tuning_from(Isa::kDotprod, {}).int4_streamed_rows, 12);
  EXPECT_EQ(tuning_from(kAvx2, {}).int4_streamed_rows, 48);
  EXPECT_EQ(tuning_from(kBf16, kZen4).int4_streamed_rows, 48);
}

TEST(CpuTuning, SlowTilesNeedMoreRows) {
  EXPECT_EQ(tuning_from(kAmx, kIntelWithAmx).tile_rows, 9);
  TuningProbe slow = kIntelWithAmx;
  slow.tile_int8_ops_per_s = 2 * slow.int8_ops_per_s;
  EXPECT_EQ(tuning_from(kAmx, slow).tile_rows, 18);
  EXPECT_EQ(tuning_from(kBf16, kZen4).tile_rows, 9) << "without tiles it does not matter";
}

TEST(CpuTuning, BlocksOfTilesFillHalfTheSecondCache) {
  EXPECT_EQ(tuning_from(kAmx, kIntelWithAmx).tile_group_bytes, 1 << 20);
  EXPECT_EQ(tuning_from(kAmx, kZen4).tile_group_bytes, 512 * 1024);
  EXPECT_EQ(tuning_from(kAmx, {}).tile_group_bytes, 512 * 1024) << "unknown";
  EXPECT_EQ(tuning_from(kAmx, kIntelWithAmx).panel_group_bytes, 512 * 1024) << "as measured without tiles";
}

TEST(CpuTuning, MeasuresWhatTheInstructionSetHasAndOnce) {
  const TuningProbe probe = probe_for_tuning(active_features());
  EXPECT_EQ(probe.bf16_flops_per_s > 0, active_features().has_all(Isa::kAvx512Bf16));
  EXPECT_EQ(probe_for_tuning(active_features(), false).bf16_flops_per_s, 0);
  EXPECT_EQ(&measured_tuning(active_features()), &measured_tuning(active_features()));
}

// The choices of the machine that most of docs/performance.md was measured on, as they were before they were
// measured.
TEST(CpuTuning, OfZen4IsWhatItWas) {
  const CpuTuning tuning = tuning_from(kBf16, kZen4);
  EXPECT_TRUE(tuning.bf16_gains);
  EXPECT_EQ(tuning.int4_streamed_rows, 48);
  EXPECT_EQ(tuning.panel_group_bytes, 512 * 1024);
}

}  // namespace
}  // namespace triptych
