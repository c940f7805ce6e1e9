// The disk tier of the visual cache: several users of one folder, a full disk, files that are not what their
// names say, and writers that are killed while they write.
#include "engine/vision_rows_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

extern char** environ;

namespace triptych {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr VisionRowsDType kF32 = VisionRowsDType::kF32;

Fingerprint key(std::uint64_t n) { return {n, 0, 0, 7}; }

// Rows [4, width] that say which key they belong to.
std::shared_ptr<const VisionRows> rows(std::uint64_t n, std::int64_t width = 64) {
  Tensor out(DType::kF32, {4, width});
  std::fill(out.f32(), out.f32() + 4 * width, static_cast<float>(n));
  return std::make_shared<const VisionRows>(*VisionRows::pack(out, kF32));
}
constexpr std::uint64_t kFile_bytes = 112 + 4 * 64 * 4;

ExpectedVisionRows expected(std::uint64_t n) { return {key(n), 4, kF32}; }

bool holds(VisionRowsDirectory& directory, std::uint64_t n) {
  const auto found = directory.find(expected(n));
  if (!found) return false;
  Tensor back(DType::kF32, {4, found->rows.n_columns()});
  found->rows.unpack(back);
  const auto is_right = [n](float v) { return v == static_cast<float>(n); };
  EXPECT_TRUE(std::all_of(back.f32(), back.f32() + back.view().numel(), is_right)) << n;
  return true;
}

class VisionRowsDirectoryTest : public testing::Test {
 protected:
  VisionRowsDirectoryTest() {
    std::string name = (fs::temp_directory_path() / "triptych-rows-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
  }
  ~VisionRowsDirectoryTest() override { fs::remove_all(folder_); }

  VisionRowsDirectoryOptions options(std::uint64_t max_bytes = std::uint64_t{1} << 30) const {
    return {.directory = folder_, .max_bytes = max_bytes};
  }
  std::size_t n_files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  static void make_older(const fs::path& path, std::chrono::seconds by) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - by);
  }
  static void write(const fs::path& path, std::string_view text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  fs::path folder_;
};

TEST_F(VisionRowsDirectoryTest, IsSharedByAllWhoOpenIt) {
  VisionRowsDirectory one(options()), other(options());
  EXPECT_FALSE(other.contains(key(1), kF32));
  one.put(key(1), rows(1), 25.0);
  one.flush();
  EXPECT_TRUE(other.contains(key(1), kF32));
  EXPECT_FALSE(other.contains(key(1), VisionRowsDType::kInt8));
  const auto found = other.find(expected(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->encode_ms, 25.0);
  EXPECT_TRUE(holds(other, 1));
  EXPECT_FALSE(holds(other, 2));
  EXPECT_EQ(one.stats().n_written, 1);
  EXPECT_EQ(one.stats().held_bytes, kFile_bytes);
  EXPECT_EQ(other.stats().read_bytes, 2 * kFile_bytes);
  EXPECT_EQ(n_files(), 1U);
  const auto permissions = fs::status(one.path_of(key(1), kF32)).permissions();
  EXPECT_EQ(permissions, fs::perms::owner_read | fs::perms::owner_write)
      << "what pictures show is their owner's";
}

TEST_F(VisionRowsDirectoryTest, WritesWhatWasPutBeforeItEnds) {
  {
    VisionRowsDirectory directory(options());
    for (std::uint64_t n = 1; n <= 20; ++n) directory.put(key(n), rows(n), 1);
  }
  VisionRowsDirectory later(options());
  for (std::uint64_t n = 1; n <= 20; ++n) EXPECT_TRUE(holds(later, n)) << n;
}

TEST_F(VisionRowsDirectoryTest, FilesUsedLongestAgoMakeRoom) {
  VisionRowsDirectory directory(options(3 * kFile_bytes));
  for (std::uint64_t n = 1; n <= 3; ++n) {
    directory.put(key(n), rows(n), 1);
    directory.flush();
    make_older(directory.path_of(key(n), kF32), std::chrono::seconds(100 - n));
  }
  EXPECT_TRUE(holds(directory, 1));  // now 2 was used longest ago
  directory.put(key(4), rows(4), 1);
  directory.flush();
  EXPECT_TRUE(holds(directory, 1));
  EXPECT_FALSE(holds(directory, 2));
  EXPECT_TRUE(holds(directory, 3));
  EXPECT_TRUE(holds(directory, 4));
  EXPECT_EQ(directory.stats().n_evicted, 1);
  EXPECT_EQ(directory.stats().held_bytes, 3 * kFile_bytes);
  VisionRowsDirectory smaller(options(kFile_bytes));
  EXPECT_EQ(n_files(), 1U) << "a smaller bound holds from the start";
  smaller.put(key(5), rows(5, 65), 1);
  smaller.flush();
  EXPECT_EQ(smaller.stats().n_dropped, 1) << "larger than all there may be";
}

TEST_F(VisionRowsDirectoryTest, NobodyWaitsForASlowDisk) {
  VisionRowsDirectoryOptions small = options();
  small.max_pending_bytes = 4 * 64 * 4;
  VisionRowsDirectory directory(small);
  for (std::uint64_t n = 1; n <= 100; ++n) directory.put(key(n), rows(n), 1);
  directory.flush();
  const auto stats = directory.stats();
  EXPECT_EQ(stats.n_written + stats.n_dropped, 100);
  EXPECT_GT(stats.n_written, 0);
  EXPECT_GT(stats.n_dropped, 0) << "a thread that writes a file each is slower than this loop";
}

// Every kind of file that is not what its name says is removed, and replaced by what is right.
TEST_F(VisionRowsDirectoryTest, AFileThatCannotBeBelievedIsRemoved) {
  VisionRowsDirectory directory(options());
  const fs::path path = directory.path_of(key(1), kF32);
  const auto put = [&](std::uint64_t n) {
    directory.put(key(n), rows(n), 1);
    directory.flush();
  };
  const auto change = [&](std::streamoff at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at).put('~');
  };
  const std::function<void()> damages[] = {[&] { change(3); },    // not such a file
                                           [&] { change(8); },    // of another version
                                           [&] { change(12); },   // of another type
                                           [&] { change(20); },   // of another picture
                                           [&] { change(48); },   // with another number of rows
                                           [&] { change(56); },   // columns
                                           [&] { change(64); },   // bytes
                                           [&] { change(75); },   // time
                                           [&] { change(90); },   // checksum
                                           [&] { change(500); },  // payload
                                           [&] { fs::resize_file(path, 0); },
                                           [&] { fs::resize_file(path, 60); },
                                           [&] { fs::resize_file(path, kFile_bytes - 1); },
                                           [&] { fs::resize_file(path, kFile_bytes + 1); },
                                           [&] { write(path, "hello\n"); },
                                           [&] {
                                             put(2);
                                             fs::rename(directory.path_of(key(2), kF32),
                                                        path);  // another picture's, whole
                                           },
                                           [&] {
                                             put(2);
                                             fs::remove(path);
                                             fs::create_symlink(directory.path_of(key(2), kF32), path);
                                           }};
  std::int64_t n_refused = 0;
  for (const auto& damage : damages) {
    put(1);
    ASSERT_TRUE(holds(directory, 1));
    damage();
    EXPECT_FALSE(holds(directory, 1)) << n_refused;
    EXPECT_EQ(directory.stats().n_refused, ++n_refused);
    EXPECT_FALSE(fs::exists(fs::symlink_status(path))) << n_refused;
  }
  fs::create_directory(path);
  EXPECT_FALSE(holds(directory, 1)) << "a folder is left alone";
  put(1);
  EXPECT_EQ(directory.stats().n_write_failures, 1);
}

TEST_F(VisionRowsDirectoryTest, LeavesFilesOfOtherNamesAlone) {
  const std::string of_rows = to_hex(key(1)) + ".fp32.rows";
  const std::vector<std::string> names = {"notes.txt",   "x" + of_rows,    of_rows + ".bak",
                                          "." + of_rows, ".notes.partial", to_hex(key(1)) + ".fp16.rows"};
  for (const std::string& name : names) {
    write(folder_ / name, std::string(5000, 'x'));
    make_older(folder_ / name, 1h);
  }
  VisionRowsDirectory directory(options(kFile_bytes));
  directory.put(key(2), rows(2), 1);
  directory.flush();
  EXPECT_TRUE(holds(directory, 2)) << "their bytes do not count";
  for (const std::string& name : names) EXPECT_TRUE(fs::exists(folder_ / name)) << name;
}

TEST_F(VisionRowsDirectoryTest, RemovesWhatAKilledWriterLeftAndNothingElse) {
  const std::string of_rows = to_hex(key(1)) + ".fp32.rows";
  const fs::path left = folder_ / ("." + of_rows + ".4711.partial");
  const fs::path numbered = folder_ / ("." + of_rows + ".4711.2.partial");
  const fs::path being_written = folder_ / ("." + of_rows + ".4712.partial");
  const fs::path just_made = folder_ / ("." + of_rows + ".4713.partial");
  for (const fs::path& path : {left, numbered, being_written, just_made}) write(path, "half");
  for (const fs::path& path : {left, numbered, being_written}) make_older(path, 1min);
  const int writer = ::open(being_written.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(writer, LOCK_EX), 0);
  VisionRowsDirectory directory(options());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(fs::exists(numbered));
  EXPECT_TRUE(fs::exists(being_written));
  EXPECT_TRUE(fs::exists(just_made));
  ::close(writer);
}

// A limit on the size of files stops a write in its middle as a full disk does.
TEST_F(VisionRowsDirectoryTest, AFullDiskIsNoError) {
  VisionRowsDirectory directory(options());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 300, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (std::uint64_t n = 1; n <= 3; ++n) directory.put(key(n), rows(n), 1);
  directory.flush();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(directory.stats().n_write_failures, 3);
  EXPECT_EQ(n_files(), 0U) << "nothing half written stays";
  EXPECT_FALSE(holds(directory, 1));
  directory.put(key(1), rows(1), 1);
  directory.flush();
  EXPECT_TRUE(holds(directory, 1)) << "and it goes on when there is room";
}

TEST_F(VisionRowsDirectoryTest, AFolderThatGoesAwayIsNoError) {
  VisionRowsDirectory directory(options());
  fs::remove_all(folder_);
  directory.put(key(1), rows(1), 1);
  directory.flush();
  EXPECT_EQ(directory.stats().n_write_failures, 1);
  EXPECT_FALSE(holds(directory, 1));
  fs::create_directory(folder_);
  directory.put(key(1), rows(1), 1);
  directory.flush();
  EXPECT_TRUE(holds(directory, 1));
}

TEST_F(VisionRowsDirectoryTest, AFolderThatCannotBeIsAnError) {
  const auto open = [](const fs::path& path) -> std::string {
    try {
      VisionRowsDirectory directory({.directory = path});
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  write(folder_ / "file", "x");
  EXPECT_THAT(open(folder_ / "file"), testing::HasSubstr("file: expected a folder"));
  EXPECT_THAT(open(folder_ / "file" / "below"), testing::HasSubstr("cannot make a folder"));
  EXPECT_THAT(open(folder_ / "no" / "parent"), testing::HasSubstr("cannot make a folder"));
  EXPECT_EQ(open(folder_ / "new"), "");
  EXPECT_EQ(fs::status(folder_ / "new").permissions(), fs::perms::owner_all);
}

// ---- other processes

constexpr const char* kFolderVariable = "TRIPTYCH_TEST_ROWS_FOLDER";
constexpr const char* kRoundsVariable = "TRIPTYCH_TEST_ROWS_ROUNDS";
constexpr std::uint64_t kKeys = 12;

// What a child of the tests below does: writes and reads large rows of few keys, which it shares with its
// siblings.
TEST(VisionRowsDirectoryChild, DISABLED_WritesAndReads) {
  const char* folder = std::getenv(kFolderVariable);
  ASSERT_NE(folder, nullptr) << "run by other tests";
  VisionRowsDirectory directory({.directory = folder, .max_bytes = std::uint64_t{6} << 20});
  Rng rng(static_cast<std::uint64_t>(::getpid()));
  const int n_rounds = std::atoi(std::getenv(kRoundsVariable));
  for (int i = 0; i < n_rounds; ++i) {
    const std::uint64_t n = rng.below(kKeys);
    if (!holds(directory, n)) directory.put(key(n), rows(n, 1 << 16), 1);  // 1 MiB
    if (i % 4 == 3) directory.flush();
  }
  directory.flush();
  EXPECT_EQ(directory.stats().n_refused, 0);
  EXPECT_EQ(directory.stats().n_write_failures, 0);
}

class Child {
 public:
  Child(const fs::path& folder, int n_rounds) {
    const std::string rounds = std::to_string(n_rounds);
    ::setenv(kFolderVariable, folder.c_str(), 1);
    ::setenv(kRoundsVariable, rounds.c_str(), 1);
    std::string arguments[] = {"child", "--gtest_filter=VisionRowsDirectoryChild.*",
                               "--gtest_also_run_disabled_tests", "--gtest_brief=1"};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv.data(), environ) != 0) pid_ = -1;
  }
  bool started() const { return pid_ > 0; }
  // Exit code, or 128 + signal.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  void kill() { ::kill(pid_, SIGKILL); }

 private:
  pid_t pid_ = -1;
};

TEST_F(VisionRowsDirectoryTest, ServesSeveralProcessesAtOnce) {
  Child a(folder_, 60), b(folder_, 60), c(folder_, 60);
  ASSERT_TRUE(a.started() && b.started() && c.started());
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(b.wait(), 0);
  EXPECT_EQ(c.wait(), 0);
  VisionRowsDirectory directory(options());
  EXPECT_GT(n_files(), 0U);
  EXPECT_LE(directory.stats().held_bytes, std::uint64_t{9} << 20)
      << "6 MiB, and what was written at one moment";
  for (std::uint64_t n = 0; n < kKeys; ++n) holds(directory, n);
  EXPECT_EQ(directory.stats().n_refused, 0);
}

TEST_F(VisionRowsDirectoryTest, IsWholeWheneverAWriterIsKilled) {
  bool some_left = false;
  for (int round = 0; round < 12; ++round) {
    Child child(folder_, 1 << 30);
    ASSERT_TRUE(child.started());
    // Not before it has begun, then at moments that differ.
    const auto limit = std::chrono::steady_clock::now() + 30s;
    while (n_files() == 0 && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(std::chrono::milliseconds(100 + 7 * round));
    child.kill();
    EXPECT_EQ(child.wait(), 128 + SIGKILL);
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() != ".partial") continue;
      some_left = true;
      make_older(entry.path(), 1min);
    }
    VisionRowsDirectory directory(options());
    for (std::uint64_t n = 0; n < kKeys; ++n) holds(directory, n);
    EXPECT_EQ(directory.stats().n_refused, 0) << "a file under its name is whole";
    for (const auto& entry : fs::directory_iterator(folder_))
      EXPECT_NE(entry.path().extension(), ".partial") << "half a file was left";
  }
  EXPECT_TRUE(some_left) << "no writer was killed while it wrote";
}

}  // namespace
}  // namespace triptych
