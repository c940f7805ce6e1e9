// What this build is: for `triptych --version`, reports and fault reports. Filled in when the library is
// built (cmake/TriptychVersion.cmake). The instruction set in use is a matter of the machine: see
// base/cpu_info.h.
#pragma once

namespace triptych {

struct BuildInfo {
  const char* version;  // "0.1.0"
  const char*
      revision;  // `git describe` of the sources, "-dirty" when changed; "unknown" outside a git checkout
  const char* compiler;    // "GNU 12.2.0"
  const char* build_type;  // "Release"
  const char* sanitizers;  // "address,undefined"; empty: none
  const char* processor;   // architecture built for: "x86_64"
};

const BuildInfo& build_info() noexcept;

}  // namespace triptych
