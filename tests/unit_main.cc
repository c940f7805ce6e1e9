// main() of the test programs: GoogleTest's, and `--require-isa=<name>`, which skips the run (exit code 77) on a machine
// without that instruction set. The set itself is chosen by the environment variable TRIPTYCH_ISA.
#include <cstdio>
#include <string>

#include <gmock/gmock.h>

#include "base/cpu_info.h"

namespace {

constexpr int kSkipped = 77;

bool machine_has(const std::string& name) {
  for (int isa = 0; isa <= static_cast<int>(triptych::detected_isa()); ++isa)
    if (triptych::to_string(static_cast<triptych::Isa>(isa)) == name) return true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const std::string option = "--require-isa=";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind(option, 0) != 0) {
      std::fprintf(stderr, "unknown argument: %s\n", argv[i]);
      return 2;
    }
    const std::string isa = argument.substr(option.size());
    if (!machine_has(isa)) {
      std::printf("skipped: this machine has no %s\n", isa.c_str());
      return kSkipped;
    }
  }
  return RUN_ALL_TESTS();
}
