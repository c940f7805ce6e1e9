// Rows of pictures on a disk, for the next start of the program: the second tier of the visual cache. A
// folder may be used by several processes at once, and each may be killed at any moment: a file appears
// whole, by renaming, and is believed only when its checksum and its header say that it is what its name
// says. What is not, is removed with a warning. Trouble with the disk is a warning, too, and the picture is
// encoded again.
//
// A thread of this class writes; nobody waits for it. Files used longest ago make room: reading one sets its
// time of modification. Files of other names are left alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "engine/vision_rows.h"

namespace triptych {

struct VisionRowsDirectoryOptions {
  std::filesystem::path directory;  // made when it is absent, its parent must exist
  /// Of all files of rows in it. Files that other processes write at the same moment may be more for as long.
  std::uint64_t max_bytes = std::uint64_t{4} << 30;
  /// Of rows that wait to be written; what comes beyond is not kept on the disk.
  std::size_t max_pending_bytes = std::size_t{256} << 20;
};

class VisionRowsDirectory {
 public:
  struct Found {
    VisionRows rows;
    double encode_ms = 0;  // that the tower took for them
  };
  struct Stats {
    std::int64_t n_written = 0, n_dropped = 0, n_write_failures = 0, n_refused = 0, n_evicted = 0;
    std::uint64_t read_bytes = 0, written_bytes = 0;
    std::uint64_t held_bytes = 0;  // of the files at the last look
  };

  /// Removes what killed processes left half written. Throws Error(kIo / kInvalidArgument) that names the
  /// folder when it cannot be used.
  explicit VisionRowsDirectory(VisionRowsDirectoryOptions options);
  /// Waits until what was put is written.
  ~VisionRowsDirectory();
  VisionRowsDirectory(const VisionRowsDirectory&) = delete;
  VisionRowsDirectory& operator=(const VisionRowsDirectory&) = delete;

  /// Reads the rows. Nothing when there are none, or none that can be believed. Any thread.
  std::optional<Found> find(const ExpectedVisionRows& expected);
  /// Whether there is a file of that name; it may still be refused when it is read. Any thread.
  bool contains(const Fingerprint& key, VisionRowsDType dtype) const;
  /// Has the rows written, behind the caller's back.
  void put(const Fingerprint& key, std::shared_ptr<const VisionRows> rows, double encode_ms);
  /// Waits until what was put is written.
  void flush();

  Stats stats() const;
  const std::filesystem::path& directory() const noexcept { return options_.directory; }
  std::filesystem::path path_of(const Fingerprint& key, VisionRowsDType dtype) const;

 private:
  struct Pending {
    Fingerprint key;
    std::shared_ptr<const VisionRows> rows;
    double encode_ms = 0;
  };
  void write_pending();
  void write(const Pending& one);
  void make_room(std::uint64_t n_bytes);
  void warn_of_write(const std::string& problem);
  void refuse(const std::filesystem::path& path, std::string_view problem);

  VisionRowsDirectoryOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Pending> pending_;  // the first is the one being written
  std::size_t pending_bytes_ = 0;
  bool ends_ = false;
  bool warned_ = false;  // of a write that failed, since the last that did not
  Stats stats_;
  std::thread writer_;  // last: it uses the rest
};

}  // namespace triptych
