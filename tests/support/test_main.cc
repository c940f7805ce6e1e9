// Entry point of all unit test programs. Beside GoogleTest's own flags it knows --require-isa=NAME: exit 77
// ("skipped" to ctest) when this machine lacks that instruction set, so that one test list serves every
// machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "base/cpu_info.h"

namespace {

constexpr int kSkipped = 77;
constexpr std::string_view kRequireIsa = "--require-isa=";

// False for a name that is no set of this kind of processor.
bool find_isa(std::string_view name, triptych::Isa& isa) {
  for (const triptych::Isa known : triptych::known_isas()) {
    isa = known;
    if (triptych::to_string(isa) == name) return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);  // takes away the flags it knows, GoogleTest's included
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    triptych::Isa isa{};
    if (argument.substr(0, kRequireIsa.size()) != kRequireIsa ||
        !find_isa(argument.substr(kRequireIsa.size()), isa)) {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
    if (!triptych::has_isa(isa)) {
      std::printf("skipped: this machine has %s at most\n",
                  std::string(to_string(triptych::detected_isa())).c_str());
      return kSkipped;
    }
  }
  return RUN_ALL_TESTS();
}
