// A file mapped into memory, read-only. Only regular files: anything else (folder, FIFO, device, socket) is
// refused before it is opened, so a FIFO cannot block the caller. A file that is cut short by someone else
// while it is mapped raises SIGBUS when the lost part is read, which ends the process (the program then names
// the file); replace model files by renaming, never in place. Large files are mapped so that huge pages of
// the system's cache serve them where it has any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace triptych {

enum class FileAccess { kNormal, kSequential, kRandom, kWillNeed, kDontNeed };

class MappedFile {
 public:
  /// Throws Error(kNotFound) when absent, kInvalidFile when not a regular file or larger than `max_bytes`,
  /// kIo when the system refuses.
  static std::shared_ptr<const MappedFile> open(
      const std::filesystem::path& path, std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max());
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const noexcept { return data_; }
  std::size_t size_bytes() const noexcept { return size_bytes_; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_bytes_}; }
  const std::filesystem::path& path() const noexcept { return path_; }

  /// A hint for the pages of [offset, offset + size) (whole file by default); never fails.
  void advise(FileAccess access, std::size_t offset_bytes = 0,
              std::size_t size_bytes = std::numeric_limits<std::size_t>::max()) const noexcept;

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

/// Path of the file of which a MappedFile holds the byte at `address`; null when none does, or when more than
/// 1024 files are mapped and this is not among the first. Safe in a signal handler, where the path is valid
/// until it returns if the address was being read.
const char* mapped_file_at(const void* address) noexcept;

/// Sees to it that a file that will be read again and again while it is mapped lies in the system's cache in
/// huge pages: with small ones a processor reads it at three quarters of the speed (docs/performance.md). A
/// file gets huge pages when it is read through a MappedFile that finds it uncached (Linux 6.16 or later and
/// a file system with large folios); one that was just written or downloaded has small ones. If so, and if
/// reading one huge page anew works and lets all of the file be read within `most`, the file is dropped from
/// the cache. True when it has huge pages now or will. Never fails.
bool cache_in_huge_pages(const std::filesystem::path& path,
                         std::chrono::nanoseconds most = std::chrono::seconds(10)) noexcept;

/// A whole file as text, with the same checks. Default limit 64 MiB.
std::string read_text_file(const std::filesystem::path& path,
                           std::uint64_t max_bytes = std::uint64_t{64} << 20);

/// A new file beside another, ".NAME.PID.partial", open for writing; whoever asked closes, renames or unlinks
/// it.
struct TemporaryFile {
  int descriptor = -1;
  std::filesystem::path path;
};
/// Nothing that exists is opened, a link neither (somebody else may have put it there): then the name gets a
/// number. Throws Error(kIo) naming `path`.
TemporaryFile create_temporary_beside(const std::filesystem::path& path);

/// Writes a whole file: to a temporary name beside it, then renamed, so that a reader never sees half of it.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
/// Throws Error(kInvalidFile) when there is something at `path` that renaming a file over it would destroy: a
/// folder, a FIFO, a device, a socket.
void check_replaceable(const std::filesystem::path& path);
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace triptych
