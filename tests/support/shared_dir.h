// Where tests find the shared reference values: environment variable TRIPTYCH_SHARED, else
// <repository>/../shared.
#pragma once

#include <cstdlib>
#include <filesystem>

#include "support/source_dir.h"

namespace triptych::test {

inline std::filesystem::path shared_dir() {
  const char* set = std::getenv("TRIPTYCH_SHARED");
  return set != nullptr && *set != '\0' ? std::filesystem::path(set) : test::source_dir() / "../shared";
}

}  // namespace triptych::test

/// Skips the test when `relative` (below the shared folder) is absent; else defines `name` as its full path.
#define TRIPTYCH_SHARED_OR_SKIP(name, relative)                                   \
  const std::filesystem::path name = ::triptych::test::shared_dir() / (relative); \
  if (!std::filesystem::exists(name))                                             \
  GTEST_SKIP() << "no " << name << "; set TRIPTYCH_SHARED to the folder with the reference values"
