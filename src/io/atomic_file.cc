#include "io/atomic_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "io/mapped_file.h"

namespace triptych {

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  check_replaceable(path_);
  TemporaryFile temporary = create_temporary_beside(path_);
  descriptor_ = temporary.descriptor;
  temporary_ = std::move(temporary.path);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::refuse(int error) const {
  fail(ErrorCode::kIo, "{}: cannot write: {}", path_.string(), std::strerror(error));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  TRIPTYCH_CHECK(descriptor_ >= 0, "{}: was written", path_.string());
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) refuse(errno);
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void AtomicFile::commit() {
  TRIPTYCH_CHECK(descriptor_ >= 0, "{}: was written", path_.string());
  if (::fsync(descriptor_) != 0) refuse(errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) refuse(errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) refuse(errno);
  temporary_.clear();
}

}  // namespace triptych
