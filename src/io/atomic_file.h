// Writing a file in pieces, whole or not at all: it lies under a temporary name until it is complete and on
// the disk, then takes the place of what was there.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace triptych {

class AtomicFile {
 public:
  /// Throws Error(kInvalidFile) when renaming a file to `path` would destroy something that is no file,
  /// Error(kIo) when the system refuses.
  explicit AtomicFile(const std::filesystem::path& path);
  /// Without commit() nothing is left behind.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws Error(kIo) naming the path.
  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void refuse(int error) const;

  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

}  // namespace triptych
