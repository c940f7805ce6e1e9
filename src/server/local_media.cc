#include "server/local_media.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "server/media_url.h"

namespace triptych::server {
namespace {

constexpr std::string_view kScheme = "file://";

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void not_there() {
  fail(ErrorCode::kNotFound, "the file is not there, or not one that may be read");
}

}  // namespace

bool is_file_url(std::string_view url) noexcept { return url.substr(0, 5) == "file:"; }

std::string path_of_file_url(std::string_view url) {
  if (url.substr(0, kScheme.size()) != kScheme) fail(ErrorCode::kInvalidArgument, "expected file:///PATH");
  url.remove_prefix(kScheme.size());
  constexpr std::string_view kLocalhost = "localhost/";
  if (url.substr(0, kLocalhost.size()) == kLocalhost) url.remove_prefix(kLocalhost.size() - 1);
  const std::string path = percent_decoded(url);
  if (path.empty() || path.front() != '/' || path.size() > 4096 || path.find('\0') != std::string::npos)
    fail(ErrorCode::kInvalidArgument, "expected file:///PATH on this machine");
  return path;
}

std::string read_local_media(const std::filesystem::path& root, const std::string& path,
                             std::uint64_t max_bytes) {
  std::string prefix = std::filesystem::canonical(root).string();
  if (prefix.back() != '/') prefix += '/';
  if (path.rfind(prefix, 0) != 0 || path.size() == prefix.size()) not_there();
  const Descriptor folder(::open(prefix.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) fail(ErrorCode::kIo, "{}: {}", prefix, std::strerror(errno));
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;  // a FIFO must not hold the thread
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const Descriptor file(
      static_cast<int>(::syscall(SYS_openat2, folder.get(), path.c_str() + prefix.size(), &how, sizeof how)));
  if (file.get() < 0) {
    if (errno == ENOSYS) fail(ErrorCode::kUnsupported, "file URLs need openat2 of Linux 5.6");
    not_there();
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) not_there();
  if (static_cast<std::uint64_t>(status.st_size) > max_bytes)
    fail(ErrorCode::kInvalidArgument, "the file has {} bytes; at most {} are read", status.st_size,
         max_bytes);
  std::string out(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t at = 0;
  while (at < out.size()) {
    const ssize_t n = ::read(file.get(), out.data() + at, out.size() - at);
    if (n < 0) fail(ErrorCode::kIo, "the file cannot be read: {}", std::strerror(errno));
    if (n == 0) break;  // it was cut short meanwhile
    at += static_cast<std::size_t>(n);
  }
  out.resize(at);
  return out;
}

}  // namespace triptych::server
