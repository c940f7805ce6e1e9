#include "support/source_dir.h"

namespace triptych::test {

const std::filesystem::path& source_dir() {
  static const std::filesystem::path path = TRIPTYCH_SOURCE_DIR;
  return path;
}

}  // namespace triptych::test
