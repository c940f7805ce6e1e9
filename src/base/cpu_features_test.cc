#include "base/cpu_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.h"

namespace triptych {
namespace {

using enum CpuFeature;

constexpr std::uint32_t bits(std::initializer_list<int> positions) {
  std::uint32_t out = 0;
  for (const int i : positions) out |= std::uint32_t{1} << i;
  return out;
}

constexpr std::uint64_t kXmm = 0x2, kYmm = 0x4, kZmm = 0xE0, kTiles = 0x60000;

// SSE4.2, FMA, F16C, AVX; AVX2 with both BMI.
constexpr CpuidWords kHaswell = {bits({12, 20, 27, 28, 29}), bits({3, 5, 8}), 0, 0, 0, kXmm | kYmm};

CpuidWords ice_lake() {
  CpuidWords words = kHaswell;
  words.leaf7_ebx |= bits({16, 17, 30, 31});
  words.leaf7_ecx = bits({1, 11});
  words.xcr0 |= kZmm;
  return words;
}

TEST(CpuFeatures, AreASet) {
  const CpuFeatures a = {kAvx2, kFma};
  const CpuFeatures b = {kFma, kAvxVnni};
  EXPECT_TRUE((a | b).has_all(a));
  EXPECT_FALSE(a.has_all(b));
  EXPECT_TRUE(a.has_all({}));
  EXPECT_EQ(a & b, CpuFeatures{kFma});
  EXPECT_EQ(b - a, CpuFeatures{kAvxVnni});
  EXPECT_FALSE((b - a).has(kFma));
  EXPECT_EQ(to_string(a | b), "avx2 fma avx_vnni");
  EXPECT_EQ(to_string(CpuFeatures()), "none");
}

TEST(CpuFeatures, AreReadFromCpuid) {
  EXPECT_EQ(features_from_cpuid({}), CpuFeatures());
  EXPECT_EQ(features_from_cpuid({.leaf1_ecx = bits({20})}), CpuFeatures{kSse42});
  EXPECT_EQ(features_from_cpuid(kHaswell), CpuFeatures(Isa::kAvx2));
  EXPECT_EQ(features_from_cpuid(ice_lake()), CpuFeatures(Isa::kAvx512Vnni) | CpuFeatures{kAvx512Vbmi});

  CpuidWords alder_lake = kHaswell;
  alder_lake.leaf7_1_eax = bits({4});
  EXPECT_EQ(features_from_cpuid(alder_lake), CpuFeatures(Isa::kAvx2) | CpuFeatures{kAvxVnni});

  CpuidWords cooper_lake = ice_lake();
  cooper_lake.leaf7_ecx = bits({11});
  cooper_lake.leaf7_1_eax = bits({5});
  EXPECT_EQ(features_from_cpuid(cooper_lake), CpuFeatures(Isa::kAvx512Bf16));

  CpuidWords sapphire_rapids = ice_lake();
  sapphire_rapids.leaf7_edx = bits({22, 24, 25});
  sapphire_rapids.leaf7_1_eax = bits({4, 5});
  sapphire_rapids.xcr0 |= kTiles;
  EXPECT_EQ(features_from_cpuid(sapphire_rapids),
            CpuFeatures(Isa::kAvx512Bf16) | CpuFeatures({kAvx512Vbmi, kAvxVnni, kAmxInt8, kAmxBf16}));
}

// A processor's instructions are of no use where the system does not save their registers.
TEST(CpuFeatures, NeedTheRegistersThatTheSystemSaves) {
  CpuidWords words = ice_lake();
  words.leaf7_edx = bits({22, 24, 25});
  EXPECT_FALSE(features_from_cpuid(words).has(kAmxInt8)) << "no tiles in XCR0";
  words.xcr0 = kXmm | kYmm;
  EXPECT_EQ(features_from_cpuid(words), CpuFeatures(Isa::kAvx2));
  words.xcr0 = kXmm;
  EXPECT_EQ(features_from_cpuid(words), CpuFeatures{kSse42});
}

CpuFeatures sapphire_rapids() { return CpuFeatures(Isa::kAmxBf16) | CpuFeatures{kAvxVnni, kAvx512Vbmi}; }

// What choose_features makes of a preset's name, and how often it asks for tiles.
struct Choice {
  CpuFeatures features;
  int n_asked = 0;
};
Choice choose(std::string_view preset, CpuFeatures detected, bool granted) {
  Choice out;
  out.features = choose_features(preset, detected, [&] {
    ++out.n_asked;
    return granted;
  });
  return out;
}

TEST(CpuFeatures, TilesAreAskedForWhereTheyMayBeUsed) {
  const Choice granted = choose("", sapphire_rapids(), true);
  EXPECT_EQ(granted.features, sapphire_rapids());
  EXPECT_EQ(granted.n_asked, 1);
  const Choice named = choose("amx_int8", sapphire_rapids(), true);
  EXPECT_EQ(named.features, CpuFeatures(Isa::kAmxInt8));
  EXPECT_EQ(named.n_asked, 1);
}

TEST(CpuFeatures, ARefusalLeavesTheRest) {
  const Choice refused = choose("", sapphire_rapids(), false);
  EXPECT_EQ(refused.features, sapphire_rapids() - kTileFeatures);
  EXPECT_EQ(refused.n_asked, 1);
}

// The permission enlarges every signal's frame: who narrows AMX away shall not have it.
TEST(CpuFeatures, TilesThatAreNarrowedAwayAreNotAskedFor) {
#if defined(__x86_64__)
  for (const std::string_view preset : {"scalar", "avx2", "avx512", "avx512_vnni", "avx512_bf16"})
    EXPECT_EQ(choose(preset, sapphire_rapids(), true).n_asked, 0) << preset;
#endif
  EXPECT_EQ(choose("scalar", sapphire_rapids(), true).n_asked, 0);
  EXPECT_EQ(choose("", sapphire_rapids() - kTileFeatures, true).n_asked, 0) << "none there";
}

#if defined(__x86_64__)
TEST(CpuFeatures, APresetThatIsNotThereIsRefused) {
  EXPECT_THAT([] { choose("amx_bf16", sapphire_rapids() - CpuFeatures{kAmxBf16}, true); },
              testing::ThrowsMessage<Error>("TRIPTYCH_ISA=amx_bf16: this machine lacks amx_bf16"));
  EXPECT_THAT([] { choose("amx_int8", sapphire_rapids(), false); },
              testing::ThrowsMessage<Error>(
                  "TRIPTYCH_ISA=amx_int8: the system refuses this process the tile registers of AMX"));
  EXPECT_THAT([] { choose("sse9", sapphire_rapids(), true); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("expected one of scalar, avx2, ")));
}
#endif

TEST(CpuFeatures, AreGrantedAsFarAsTheMachineHasThem) {
  EXPECT_EQ(granted_features(detected_features() - kTileFeatures), detected_features() - kTileFeatures);
  EXPECT_TRUE(detected_features().has_all(granted_features(CpuFeatures::from_bits(~std::uint64_t{0} >> 1))));
  EXPECT_TRUE(granted_features({}).empty());
}

// AVX2 without BMI2, or AVX-512 F without BW, is not what kernels are compiled for.
TEST(CpuFeatures, AGroupNeedsAllItsExtensions) {
  CpuidWords words = ice_lake();
  words.leaf7_ebx &= ~bits({30});
  EXPECT_FALSE(features_from_cpuid(words).has(kAvx512Core));
  words.leaf7_ebx &= ~bits({8});
  EXPECT_FALSE(features_from_cpuid(words).has(kAvx2));
}

TEST(CpuFeatures, AreReadFromHwcaps) {
  EXPECT_EQ(features_from_hwcaps(bits({0, 1}), 0), CpuFeatures(Isa::kNeon));                // Cortex-A53
  EXPECT_EQ(features_from_hwcaps(bits({1, 7, 8, 12, 20}), 0), CpuFeatures(Isa::kDotprod));  // Cortex-A76
  EXPECT_EQ(features_from_hwcaps(bits({1, 7, 8, 12, 20, 22}), bits({1, 13, 14})),           // Neoverse V2
            CpuFeatures(Isa::kI8mm) | CpuFeatures({kSve, kSve2, kArmBf16}));
}

TEST(CpuFeatures, PresetsOfAKindIncludeEachOther) {
  const auto known = known_isas();
  ASSERT_FALSE(known.empty());
  EXPECT_EQ(known.front(), Isa::kScalar);
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < known.size(); ++i) {
    names.insert(to_string(known[i]));
    EXPECT_EQ(preset_of(known[i]), known[i]);
    if (i > 0) {
      EXPECT_TRUE(CpuFeatures(known[i]).has_all(known[i - 1]));
    }
  }
  EXPECT_EQ(names.size(), known.size());
  EXPECT_EQ(names.count("unknown"), 0U);
}

// What no preset has changes no name.
TEST(CpuFeatures, AreNamedByTheLargestPresetTheyHold) {
#if defined(__x86_64__)
  EXPECT_EQ(preset_of(CpuFeatures(Isa::kAvx2) | CpuFeatures({kAvxVnni, kAvx512Vnni})), Isa::kAvx2);
  EXPECT_EQ(preset_of(CpuFeatures(Isa::kAvx512) | CpuFeatures{kAvx512Bf16}), Isa::kAvx512);
  EXPECT_EQ(preset_of(CpuFeatures(Isa::kAvx512) - CpuFeatures{kF16c}), Isa::kScalar);
#elif defined(__aarch64__)
  EXPECT_EQ(preset_of(CpuFeatures(Isa::kNeon) | CpuFeatures({kSve, kI8mm})), Isa::kNeon);
#endif
}

TEST(CpuFeatures, InUseAreThoseOfTheMachineOrFewer) {
  EXPECT_TRUE(detected_features().has_all(active_features()));
  EXPECT_TRUE(has_isa(active_isa()));
  for (const Isa isa : usable_isas()) EXPECT_TRUE(active_features().has_all(isa)) << to_string(isa);
  EXPECT_EQ(usable_isas().back(), active_isa());
}

TEST(CpuFeatures, CanBeNarrowedAndWidenedBack) {
  const CpuFeatures before = active_features();
  set_active_features(Isa::kScalar);
  EXPECT_EQ(active_features(), CpuFeatures());
  EXPECT_EQ(usable_isas(), std::vector<Isa>{Isa::kScalar});
  set_active_features(before);
  EXPECT_EQ(active_features(), before);
}

TEST(CpuFeatures, OfAnotherKindOfProcessorAreRefused) {
#if defined(__aarch64__)
  constexpr CpuFeature kForeign = kAvx2;
  constexpr const char* kName = "avx2";
#else
  constexpr CpuFeature kForeign = kNeon;
  constexpr const char* kName = "neon";
#endif
  const CpuFeatures before = active_features();
  EXPECT_THAT([&] { set_active_features(before | CpuFeatures{kForeign}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("this machine lacks " + std::string(kName))));
  EXPECT_EQ(active_features(), before);
}

// Where the tests run in an emulator, ctest says what the emulated processor has.
TEST(CpuFeatures, AreDetectedInTheEmulatedProcessor) {
  const char* expected = std::getenv("TRIPTYCH_EXPECT_ISA");
  if (expected == nullptr) GTEST_SKIP() << "TRIPTYCH_EXPECT_ISA is not set";
  EXPECT_EQ(to_string(detected_isa()), expected);
}

}  // namespace
}  // namespace triptych
