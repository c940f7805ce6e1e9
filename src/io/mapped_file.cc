#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"

namespace triptych {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) noexcept : fd_(fd) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const noexcept { return fd_; }
  // False when the system reports an error that it had kept back.
  bool close() noexcept { return fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

[[noreturn]] void fail_io(const char* what, const std::filesystem::path& path, int error) {
  fail(error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: cannot {}: {}",
       path.string(), what, std::strerror(error));
}

const char* kind_of(mode_t mode) noexcept {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// The file's status after the check that it is a regular file.
void check_regular(const struct stat& status, const std::filesystem::path& path) {
  if (!S_ISREG(status.st_mode))
    fail(ErrorCode::kInvalidFile, "{}: expected a regular file, it is {}", path.string(),
         kind_of(status.st_mode));
}

constexpr std::size_t kHugePage_bytes = std::size_t{2} << 20;

// Maps a file so that huge pages of its cache can be mapped as such: at a multiple of their size. Null when
// the system refuses.
void* map_read_only(int fd, std::size_t size_bytes) noexcept {
#if defined(MADV_HUGEPAGE)
  if (size_bytes >= kHugePage_bytes) {
    const std::size_t room_bytes = size_bytes + kHugePage_bytes;
    void* room = ::mmap(nullptr, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room != MAP_FAILED) {
      auto* begin = static_cast<std::byte*>(room);
      const auto address = reinterpret_cast<std::uintptr_t>(begin);
      const std::size_t before = (kHugePage_bytes - address % kHugePage_bytes) % kHugePage_bytes;
      void* data = ::mmap(begin + before, size_bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
      const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
      const std::size_t end = before + (size_bytes + page - 1) / page * page;
      if (data == MAP_FAILED) {
        ::munmap(room, room_bytes);
      } else {
        if (before > 0) ::munmap(begin, before);
        if (end < room_bytes) ::munmap(begin + end, room_bytes - end);
        ::madvise(data, size_bytes, MADV_HUGEPAGE);  // a hint
        return data;
      }
    }
  }
#endif
  void* data = ::mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  return data == MAP_FAILED ? nullptr : data;
}

// Of the mapping that begins at `data`: bytes mapped with huge pages of the file's cache.
std::size_t huge_mapped_bytes(const void* data) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(data));
  bool found = false;
  for (std::string line; std::getline(smaps, line);) {
    if (!found) {
      found = line.starts_with(begin);
      continue;
    }
    constexpr std::string_view kField = "FilePmdMapped:";
    if (line.starts_with(kField)) return std::strtoull(line.c_str() + kField.size(), nullptr, 10) * 1024;
    if (line.starts_with("VmFlags:")) break;
  }
  return 0;
}

// What is mapped, for signal handlers: no locks, no memory. A slot is taken by its begin and complete with
// its path.
struct MappingSlot {
  std::atomic<const std::byte*> begin = nullptr;
  std::atomic<std::size_t> size_bytes = 0;
  std::atomic<const char*> path = nullptr;
};
std::array<MappingSlot, 1024> g_mappings;

void note_mapping(const std::byte* begin, std::size_t size_bytes, const char* path) noexcept {
  for (MappingSlot& slot : g_mappings) {
    const std::byte* none = nullptr;
    if (slot.begin.load() != nullptr || !slot.begin.compare_exchange_strong(none, begin)) continue;
    slot.size_bytes = size_bytes;
    slot.path = path;
    return;
  }
}

void forget_mapping(const std::byte* begin) noexcept {
  for (MappingSlot& slot : g_mappings) {
    if (slot.begin.load() != begin) continue;
    slot.path = nullptr;
    slot.begin = nullptr;
    return;
  }
}

}  // namespace

const char* mapped_file_at(const void* address) noexcept {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  for (const MappingSlot& slot : g_mappings) {
    const char* const path = slot.path.load();
    const auto begin = reinterpret_cast<std::uintptr_t>(slot.begin.load());
    if (path != nullptr && wanted >= begin && wanted - begin < slot.size_bytes.load()) return path;
  }
  return nullptr;
}

TemporaryFile create_temporary_beside(const std::filesystem::path& path) {
  constexpr int kMostLeftOver = 100;
  for (int n = 0;; ++n) {
    const std::string number = n == 0 ? std::string() : fmt::format(".{}", n);
    const std::filesystem::path temporary =
        path.parent_path() / fmt::format(".{}.{}{}.partial", path.filename().string(), ::getpid(), number);
    const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file >= 0) return {file, temporary};
    if (errno != EEXIST || n == kMostLeftOver) fail_io("create", path, errno);
  }
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path,
                                                   std::uint64_t max_bytes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail_io("read", path, errno);
  check_regular(status, path);
  // The second look is at what was really opened; not blocking in case it was swapped for a FIFO in between.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) fail_io("open", path, errno);
  if (::fstat(file.get(), &status) != 0) fail_io("read", path, errno);
  check_regular(status, path);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > max_bytes || size > std::numeric_limits<std::size_t>::max() / 2)
    fail(ErrorCode::kInvalidFile, "{}: expected at most {} bytes, it has {}", path.string(), max_bytes, size);

  std::shared_ptr<MappedFile> out(new MappedFile);
  out->path_ = path;
  if (size == 0) return out;
  void* data = map_read_only(file.get(), static_cast<std::size_t>(size));
  if (data == nullptr) fail_io("map", path, errno);
  out->data_ = static_cast<const std::byte*>(data);
  out->size_bytes_ = static_cast<std::size_t>(size);
  note_mapping(out->data_, out->size_bytes_, out->path_.c_str());
  return out;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_bytes_);
}

void MappedFile::advise(FileAccess access, std::size_t offset_bytes, std::size_t size_bytes) const noexcept {
  if (offset_bytes >= size_bytes_) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = offset_bytes / page * page;
  const std::size_t end = offset_bytes + std::min(size_bytes, size_bytes_ - offset_bytes);
  int advice = MADV_NORMAL;
  switch (access) {
    case FileAccess::kNormal:
      advice = MADV_NORMAL;
      break;
    case FileAccess::kSequential:
      advice = MADV_SEQUENTIAL;
      break;
    case FileAccess::kRandom:
      advice = MADV_RANDOM;
      break;
    case FileAccess::kWillNeed:
      advice = MADV_WILLNEED;
      break;
    case FileAccess::kDontNeed:
      advice = MADV_DONTNEED;
      break;
  }
  ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, advice);
}

bool cache_in_huge_pages(const std::filesystem::path& path, std::chrono::nanoseconds most) noexcept try {
#if defined(MADV_HUGEPAGE)
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const auto size = static_cast<std::size_t>(status.st_size);
  const std::size_t n_pages = size / kHugePage_bytes;
  if (n_pages < 2) return false;
  // One page in the middle of the file speaks for all.
  const std::size_t offset = n_pages / 2 * kHugePage_bytes;
  enum class Probe { kHuge, kSmall, kUnknown };
  const auto probe = [&] {
    const auto part = MappedFile::open(path);
    if (part->size_bytes() != size) return Probe::kUnknown;
    static_cast<void>(*static_cast<const volatile std::byte*>(part->data() + offset));
    return huge_mapped_bytes(part->data()) > 0 ? Probe::kHuge : Probe::kSmall;
  };
  Probe found = probe();
  if (found != Probe::kSmall) return found == Probe::kHuge;
  // Another kernel or file system may have none: tried with that page before the file is let go.
  if (::posix_fadvise(file.get(), static_cast<off_t>(offset), kHugePage_bytes, POSIX_FADV_DONTNEED) != 0)
    return false;
  const auto start = std::chrono::steady_clock::now();
  found = probe();
  if (found != Probe::kHuge || (std::chrono::steady_clock::now() - start) * n_pages > most) return false;
  return ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) == 0;
#else
  static_cast<void>(path);
  static_cast<void>(most);
  return false;
#endif
} catch (...) {
  return false;
}

std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const auto file = MappedFile::open(path, max_bytes);
  return std::string(reinterpret_cast<const char*>(file->data()), file->size_bytes());
}

void check_replaceable(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) check_regular(status, path);
}

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  check_replaceable(path);
  const auto [descriptor, temporary] = create_temporary_beside(path);
  FileDescriptor file(descriptor);
  int error = 0;
  while (!bytes.empty() && error == 0) {
    const ssize_t n = ::write(file.get(), bytes.data(), bytes.size());
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (error == 0 && ::fsync(file.get()) != 0) error = errno;
  if (!file.close() && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(temporary.c_str());
  fail(ErrorCode::kIo, "{}: cannot write: {}", path.string(), std::strerror(error));
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span(text)));
}

}  // namespace triptych
