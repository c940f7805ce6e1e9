#include "base/cpu_info.h"

#include <gtest/gtest.h>

#include <sstream>

namespace triptych {
namespace {

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

}  // namespace
}  // namespace triptych
