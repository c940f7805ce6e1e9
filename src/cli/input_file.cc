#include "cli/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "cli/interrupt.h"
#include "unicode/utf8.h"

namespace triptych::cli {
namespace {

// Closes what it opened.
struct Descriptor {
  int fd = STDIN_FILENO;
  bool is_own = false;
  Descriptor(const std::string& name, const std::string& what) {
    if (name == "-") return;
    fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
    is_own = true;
    if (fd < 0) {
      const int error = errno;
      fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}", what, std::strerror(error));
    }
  }
  ~Descriptor() {
    if (is_own && fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

}  // namespace

bool is_stream(const std::string& name) {
  if (name == "-") return true;
  struct stat status = {};
  return ::stat(name.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

bool is_stdin(const std::string& name) {
  if (name == "-") return true;
  struct stat a = {}, b = {};
  return ::stat(name.c_str(), &a) == 0 && ::fstat(STDIN_FILENO, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino && !S_ISREG(a.st_mode);
}

std::vector<std::byte> read_all(const std::string& name, std::uint64_t max_bytes, const std::string& what) {
  const InterruptsRead interrupts_read;  // opening a FIFO waits too
  const Descriptor file(name, what);
  struct stat status = {};
  if (::fstat(file.fd, &status) == 0 && S_ISDIR(status.st_mode))
    fail(ErrorCode::kInvalidFile, "{}: expected a file, it is a folder", what);
  std::vector<std::byte> out;
  std::vector<std::byte> piece(std::size_t{1} << 16);
  for (;;) {
    const ssize_t n = ::read(file.fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR && !Interrupt::pending()) continue;
    if (n < 0) fail(ErrorCode::kIo, "{}: cannot be read: {}", what, std::strerror(errno));
    if (n == 0) break;
    out.insert(out.end(), piece.begin(), piece.begin() + n);
    if (out.size() > max_bytes)
      fail(ErrorCode::kInvalidArgument, "{}: more than the limit of {} bytes", what, max_bytes);
  }
  return out;
}

std::string read_all_text(const std::string& name, std::uint64_t max_bytes, const std::string& what) {
  const std::vector<std::byte> bytes = read_all(name, max_bytes, what);
  std::string out(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!utf8::is_valid(out)) fail(ErrorCode::kInvalidFile, "{}: expected UTF-8", what);
  return out;
}

}  // namespace triptych::cli
