// The generated values are there and have their forms.
#include "base/build_info.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace triptych {
namespace {

TEST(BuildInfo, NamesVersionRevisionAndCompiler) {
  const BuildInfo& info = build_info();
  EXPECT_TRUE(std::regex_match(info.version, std::regex(R"(\d+\.\d+\.\d+)"))) << info.version;
  EXPECT_TRUE(std::regex_match(info.revision, std::regex(R"([A-Za-z0-9._-]+)"))) << info.revision;
  EXPECT_TRUE(std::regex_search(info.compiler, std::regex(R"([A-Za-z]+ \d+\.\d+)"))) << info.compiler;
#if defined(__clang__)
  EXPECT_NE(std::string(info.compiler).find("Clang " + std::to_string(__clang_major__)), std::string::npos)
      << info.compiler;
#elif defined(__GNUC__)
  EXPECT_EQ(std::string(info.compiler).find("GNU " + std::to_string(__GNUC__)), 0U) << info.compiler;
#endif
  EXPECT_STRNE(info.build_type, "");
  EXPECT_STRNE(info.processor, "");
}

}  // namespace
}  // namespace triptych
