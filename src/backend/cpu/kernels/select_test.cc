// Which implementations sets of flags get, also sets that no machine here has.
#include "backend/cpu/kernels/select.h"

#include <gtest/gtest.h>

#include <string>

#include "backend/cpu/kernels/attention/attention.h"
#include "backend/cpu/kernels/attention_s8/attention_s8.h"
#include "backend/cpu/kernels/gemm/gemm.h"
#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"
#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/gemv/gemv.h"

namespace triptych::kernels {
namespace {

// Names of the kernels of floats, of 8-bit integers, and of bfloat16 ("none" without).
std::string chosen(CpuFeatures features) {
  const std::string floats = gemm_kernels(features).name;
  EXPECT_EQ(gemv_kernels(features).name, floats);
  EXPECT_EQ(attention_kernels(features).name, floats);
  const GemmKernels* bf16 = gemm_bf16_kernels(features);
  return floats + " " + gemm_s8_kernels(features).name + " " + (bf16 != nullptr ? bf16->name : "none");
}

TEST(SelectKernels, NothingIsNeededForTheScalarOnes) {
  EXPECT_EQ(chosen({}), "scalar scalar none");
  EXPECT_EQ(chosen({CpuFeature::kSse42}), "scalar scalar none");
}

#if defined(__x86_64__)

TEST(SelectKernels, PresetsChooseTheKernelsOfTheirName) {
  EXPECT_EQ(chosen(Isa::kAvx2), "avx2 avx2 none");
  EXPECT_EQ(chosen(Isa::kAvx512), "avx512 avx2 none");
  EXPECT_EQ(chosen(Isa::kAvx512Vnni), "avx512 avx512_vnni none");
  EXPECT_EQ(chosen(Isa::kAvx512Bf16), "avx512 avx512_vnni avx512_bf16");
  EXPECT_EQ(chosen(Isa::kAmxInt8), "avx512 avx512_vnni avx512_bf16");
  EXPECT_EQ(chosen(Isa::kAmxBf16), "avx512 avx512_vnni amx_bf16");
  EXPECT_EQ(gemm_s8_tile_kernels(Isa::kAvx512Bf16), nullptr);
  EXPECT_EQ(gemm_s8_tile_kernels(Isa::kAmxInt8), &kGemmS8AmxInt8);
  EXPECT_EQ(gemm_s8_tile_kernels(Isa::kAmxBf16), &kGemmS8AmxInt8);
  EXPECT_STREQ(gemm_s4_kernels(Isa::kAvx512Vnni).name, "avx512_vnni");
  EXPECT_STREQ(attention_s8_kernels(Isa::kAvx512Vnni).name, "avx512_vnni");
}

// Alder Lake: VNNI for 256 bits only.
TEST(SelectKernels, AvxVnniIsNoAvx512Vnni) {
  EXPECT_EQ(chosen(CpuFeatures(Isa::kAvx2) | CpuFeatures{CpuFeature::kAvxVnni}), "avx2 avx2 none");
}

// Flags of later extensions without the one below them, as a hypervisor may show them.
TEST(SelectKernels, EveryFlagOfAFileMustBeThere) {
  const CpuFeatures all = CpuFeatures(Isa::kAvx512Bf16) | CpuFeatures{CpuFeature::kAvx512Vbmi};
  EXPECT_EQ(chosen(all - CpuFeatures{CpuFeature::kAvx512Vnni}), "avx512 avx2 none");
  EXPECT_EQ(chosen(all - CpuFeatures{CpuFeature::kAvx512Core}), "avx2 avx2 none");
  EXPECT_EQ(chosen(all - CpuFeatures{CpuFeature::kF16c}), "scalar scalar none");
}

// Cascade Lake has VNNI and Cooper Lake BF16, too, both without VBMI, which no kernel needs.
TEST(SelectKernels, VbmiIsNotNeeded) {
  EXPECT_FALSE(CpuFeatures(Isa::kAvx512Bf16).has(CpuFeature::kAvx512Vbmi));
  EXPECT_EQ(chosen(Isa::kAvx512Bf16), "avx512 avx512_vnni avx512_bf16");
}

#elif defined(__aarch64__)

TEST(SelectKernels, PresetsChooseTheKernelsOfTheirName) {
  EXPECT_EQ(chosen(Isa::kNeon), "neon neon none");
  EXPECT_EQ(chosen(Isa::kDotprod), "neon dotprod none");
  EXPECT_EQ(chosen(Isa::kI8mm), "neon i8mm none");
  EXPECT_EQ(chosen(CpuFeatures(Isa::kI8mm) | CpuFeatures{CpuFeature::kSve}), "neon i8mm none");
}

TEST(SelectKernels, EveryFlagOfAFileMustBeThere) {
  EXPECT_EQ(chosen(CpuFeatures(Isa::kI8mm) - CpuFeatures{CpuFeature::kDotprod}), "neon neon none");
  EXPECT_EQ(chosen(CpuFeatures(Isa::kI8mm) - CpuFeatures{CpuFeature::kArmv82}), "neon neon none");
}

#endif

}  // namespace
}  // namespace triptych::kernels
