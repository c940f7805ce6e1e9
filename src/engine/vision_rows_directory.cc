#include "engine/vision_rows_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "io/mapped_file.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".rows";
constexpr std::string_view kPartial = ".partial";
constexpr std::size_t kHexDigits = 64;
// A file that is being written is locked; it is not yet, just after it was made.
constexpr std::chrono::seconds kUnlockedAge{5};

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

std::string error_text(int error) { return std::system_category().message(error); }

// "<64 digits>.fp32.rows"
bool is_rows_name(std::string_view name) {
  if (name.size() <= kHexDigits || !fingerprint_from_hex(name.substr(0, kHexDigits))) return false;
  for (const VisionRowsDType dtype : {VisionRowsDType::kF32, VisionRowsDType::kInt8}) {
    const std::string rest = "." + std::string(to_string(dtype)) + std::string(kExtension);
    if (name.substr(kHexDigits) == rest) return true;
  }
  return false;
}

// ".<rows name>.<process>[.<number>].partial", as create_temporary_beside makes it.
bool is_partial_name(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(kPartial)) return false;
  const std::size_t end = name.find(kExtension);
  return end != std::string_view::npos && is_rows_name(name.substr(1, end - 1 + kExtension.size()));
}

// Left by a process that is gone: whoever writes one holds a lock.
void remove_if_left(const fs::path& path) {
  std::error_code error;
  const auto changed = fs::last_write_time(path, error);
  if (error || fs::file_time_type::clock::now() - changed < kUnlockedAge) return;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return;
  log_debug("{}: left by a process that is gone, removed", path.string());
  ::unlink(path.c_str());
}

// False with errno set.
bool write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

// False at the end of the file or with errno set.
bool read_all(int file, std::span<std::byte> bytes) {
  errno = 0;
  while (!bytes.empty()) {
    const ssize_t n = ::read(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

VisionRowsDirectory::VisionRowsDirectory(VisionRowsDirectoryOptions options) : options_(std::move(options)) {
  const fs::path& directory = options_.directory;
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    fail(ErrorCode::kIo, "{}: cannot make a folder for rows of pictures: {}", directory.string(),
         error_text(errno));
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0)
    fail(ErrorCode::kIo, "{}: {}", directory.string(), error_text(errno));
  if (!S_ISDIR(status.st_mode))
    fail(ErrorCode::kInvalidArgument, "{}: expected a folder for rows of pictures", directory.string());
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    log_warning("{}: others may write there: what they put there can change answers about pictures",
                directory.string());
  try {
    make_room(0);
  } catch (const fs::filesystem_error& error) {
    fail(ErrorCode::kIo, "{}: {}", directory.string(), error.code().message());
  }
  writer_ = std::thread([this] { write_pending(); });
}

VisionRowsDirectory::~VisionRowsDirectory() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

fs::path VisionRowsDirectory::path_of(const Fingerprint& key, VisionRowsDType dtype) const {
  return options_.directory / (to_hex(key) + "." + std::string(to_string(dtype)) + std::string(kExtension));
}

bool VisionRowsDirectory::contains(const Fingerprint& key, VisionRowsDType dtype) const {
  return ::access(path_of(key, dtype).c_str(), R_OK) == 0;
}

void VisionRowsDirectory::refuse(const fs::path& path, std::string_view problem) {
  log_warning("{}: not used, and removed: {}", path.string(), problem);
  ::unlink(path.c_str());
  const std::lock_guard lock(mutex_);
  ++stats_.n_refused;
}

std::optional<VisionRowsDirectory::Found> VisionRowsDirectory::find(const ExpectedVisionRows& expected) {
  const fs::path path = path_of(expected.key, expected.dtype);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) {
    if (errno == ELOOP) refuse(path, "a link");
    return std::nullopt;
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  try {
    VisionRowsFile::Header header{};
    if (!read_all(file.get(), header))
      fail(ErrorCode::kInvalidFile, "{}", errno != 0 ? error_text(errno) : "shorter than its header");
    VisionRowsFile reader(header, static_cast<std::uint64_t>(status.st_size), expected);
    if (!read_all(file.get(), reader.payload()))
      fail(ErrorCode::kInvalidFile, "{}", errno != 0 ? error_text(errno) : "cut short while it was read");
    const double encode_ms = reader.encode_ms();
    Found out{.rows = std::move(reader).take_rows(), .encode_ms = encode_ms};
    ::futimens(file.get(),
               nullptr);  // the last to make room; where that is not allowed its turn comes earlier
    const std::lock_guard lock(mutex_);
    stats_.read_bytes += static_cast<std::uint64_t>(status.st_size);
    return out;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidFile) throw;
    refuse(path, error.what());
    return std::nullopt;
  }
}

void VisionRowsDirectory::put(const Fingerprint& key, std::shared_ptr<const VisionRows> rows,
                              double encode_ms) {
  const std::lock_guard lock(mutex_);
  if (pending_bytes_ + rows->size_bytes() > options_.max_pending_bytes) {
    ++stats_.n_dropped;
    return;
  }
  pending_bytes_ += rows->size_bytes();
  pending_.push_back({key, std::move(rows), encode_ms});
  changed_.notify_all();
}

void VisionRowsDirectory::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_.empty(); });
}

VisionRowsDirectory::Stats VisionRowsDirectory::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void VisionRowsDirectory::write_pending() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !pending_.empty(); });
    if (pending_.empty()) return;
    const Pending one = pending_.front();
    lock.unlock();
    try {
      write(one);
    } catch (const std::exception& error) {  // no memory for a name, a folder that is gone
      warn_of_write(error.what());
    }
    lock.lock();
    pending_bytes_ -= one.rows->size_bytes();
    pending_.pop_front();
    changed_.notify_all();
  }
}

// Once for each time of trouble: a full disk stays full for long.
void VisionRowsDirectory::warn_of_write(const std::string& problem) {
  const std::lock_guard lock(mutex_);
  ++stats_.n_write_failures;
  if (!std::exchange(warned_, true))
    log_warning("{}: rows of pictures cannot be kept there: {}", options_.directory.string(), problem);
}

void VisionRowsDirectory::write(const Pending& one) {
  const std::uint64_t n_bytes = VisionRowsFile::kHeader_bytes + one.rows->size_bytes();
  if (n_bytes > options_.max_bytes) {
    const std::lock_guard lock(mutex_);
    ++stats_.n_dropped;
    return;
  }
  make_room(n_bytes);
  const fs::path path = path_of(one.key, one.rows->dtype());
  const TemporaryFile temporary = create_temporary_beside(path);
  const Descriptor file(temporary.descriptor);
  ::flock(file.get(), LOCK_EX | LOCK_NB);  // says that its writer lives
  const VisionRowsFile::Header header = VisionRowsFile::header_of(one.key, *one.rows, one.encode_ms);
  // Not synced: after a loss of power a file may be damaged, which its checksum shows.
  if (!(::fchmod(file.get(), 0600) == 0 && write_all(file.get(), header) &&
        write_all(file.get(), one.rows->payload()) && ::rename(temporary.path.c_str(), path.c_str()) == 0)) {
    const int error = errno;
    ::unlink(temporary.path.c_str());
    warn_of_write(error_text(error));
    return;
  }
  const std::lock_guard lock(mutex_);
  warned_ = false;
  ++stats_.n_written;
  stats_.written_bytes += n_bytes;
  stats_.held_bytes += n_bytes;
}

// Looks at the whole folder, as other processes write there, too.
void VisionRowsDirectory::make_room(std::uint64_t n_bytes) {
  struct File {
    fs::path path;
    std::uint64_t n_bytes = 0;
    timespec used{};
  };
  std::vector<File> files;
  std::uint64_t total = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.directory)) {
    const std::string name = entry.path().filename().string();
    if (is_partial_name(name)) remove_if_left(entry.path());
    if (!is_rows_name(name)) continue;
    struct stat status {};
    if (::lstat(entry.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    files.push_back({entry.path(), static_cast<std::uint64_t>(status.st_size), status.st_mtim});
    total += files.back().n_bytes;
  }
  std::int64_t n_evicted = 0;
  if (total + n_bytes > options_.max_bytes) {
    std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
      return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
    });
    for (const File& one : files) {
      if (total + n_bytes <= options_.max_bytes) break;
      if (::unlink(one.path.c_str()) == 0) ++n_evicted;
      total -= one.n_bytes;  // or another process was first
    }
  }
  const std::lock_guard lock(mutex_);
  stats_.n_evicted += n_evicted;
  stats_.held_bytes = total;
}

}  // namespace triptych
