#include "base/cpu_info.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "base/error.h"

namespace triptych {
namespace {

TEST(CpuInfo, KnownSetsAreOrderedAndNamed) {
  const auto known = known_isas();
  ASSERT_FALSE(known.empty());
  EXPECT_EQ(known.front(), Isa::kScalar);
  EXPECT_TRUE(std::is_sorted(known.begin(), known.end()));
  std::set<std::string_view> names;
  for (const Isa isa : known) names.insert(to_string(isa));
  EXPECT_EQ(names.size(), known.size());
  EXPECT_EQ(names.count("unknown"), 0U);
}

TEST(CpuInfo, HasTheSetsUpToTheDetectedOne) {
  for (const Isa isa : known_isas()) EXPECT_EQ(has_isa(isa), isa <= detected_isa()) << to_string(isa);
  EXPECT_TRUE(has_isa(active_isa()));
}

TEST(CpuInfo, RefusesTheSetsOfAnotherKindOfProcessor) {
  const auto known = known_isas();
  for (const Isa isa : {Isa::kNeon, Isa::kDotprod, Isa::kI8mm, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni,
                        Isa::kAvx512Bf16}) {
    if (std::find(known.begin(), known.end(), isa) != known.end()) continue;
    EXPECT_FALSE(has_isa(isa)) << to_string(isa);
    EXPECT_THROW(set_active_isa(isa), Error) << to_string(isa);
  }
}

TEST(CpuInfo, NamesTheProcessor) {
  const auto name = [](const char* text) {
    std::istringstream in(text);
    return cpu_name(in);
  };
  EXPECT_EQ(name("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9R14\n"),
            "AMD EPYC 9R14");
  EXPECT_EQ(name("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"),
            "ARM implementer 0x41 part 0xd0c");
  EXPECT_EQ(name("CPU implementer\t: 0x41\nCPU part\t: 0xd08\n\nModel\t\t: Raspberry Pi 4 Model B\n"),
            "Raspberry Pi 4 Model B");
  EXPECT_EQ(name("CPU part\t: 0xd08\n"), "unknown");
  EXPECT_EQ(name(""), "unknown");
}

// Where the tests run in an emulator, ctest says what the emulated processor has.
TEST(CpuInfo, DetectsWhatTheEmulatedProcessorHas) {
  const char* expected = std::getenv("TRIPTYCH_EXPECT_ISA");
  if (expected == nullptr) GTEST_SKIP() << "TRIPTYCH_EXPECT_ISA is not set";
  EXPECT_EQ(to_string(detected_isa()), expected);
}

}  // namespace
}  // namespace triptych
