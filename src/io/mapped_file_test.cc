#include "io/mapped_file.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "io/test_files.h"

namespace triptych {
namespace {

using test::error_of;
using test::TempDir;
using testing::HasSubstr;

TEST(MappedFile, HoldsTheBytes) {
  const TempDir dir;
  const std::string text = "some text " + std::string(10000, 'x');
  const auto file = MappedFile::open(dir.write("a.txt", text));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->data()), file->size_bytes()), text);
  EXPECT_EQ(read_text_file(dir / "a.txt"), text);
  for (const FileAccess access : {FileAccess::kNormal, FileAccess::kSequential, FileAccess::kRandom,
                                  FileAccess::kWillNeed, FileAccess::kDontNeed}) {
    file->advise(access);
    file->advise(access, 5000, 10);
    file->advise(access, 20000);
  }
  EXPECT_EQ(static_cast<char>(file->data()[9999]), 'x');
  // The mapping outlives the name.
  std::filesystem::remove(dir / "a.txt");
  EXPECT_EQ(static_cast<char>(file->data()[0]), 's');
}

TEST(MappedFile, IsKnownByItsAddresses) {
  const TempDir dir;
  const std::byte* gone = nullptr;
  {
    const auto a = MappedFile::open(dir.write("a.txt", std::string(5000, 'x')));
    const auto b = MappedFile::open(dir.write("b.txt", "y"));
    gone = a->data();
    EXPECT_STREQ(mapped_file_at(a->data()), (dir / "a.txt").c_str());
    EXPECT_STREQ(mapped_file_at(a->data() + 4999), (dir / "a.txt").c_str());
    EXPECT_STREQ(mapped_file_at(b->data()), (dir / "b.txt").c_str());
    EXPECT_EQ(mapped_file_at(b->data() + 1), nullptr);
    EXPECT_EQ(mapped_file_at(&gone), nullptr);
  }
  EXPECT_EQ(mapped_file_at(gone), nullptr);
}

// Whether the system has huge pages for files or not: the bytes are the same, and a file of that size begins
// where one could.
TEST(MappedFile, LargeFilesAreAlignedForHugePages) {
  const TempDir dir;
  constexpr std::size_t kHugePage_bytes = std::size_t{2} << 20;
  for (const std::size_t size : {kHugePage_bytes - 1, kHugePage_bytes, 4 * kHugePage_bytes + 4097}) {
    std::string text(size, 'x');
    for (std::size_t i = 0; i < size; i += 1000) text[i] = static_cast<char>('a' + i / 1000 % 20);
    const auto path = dir.write("large", text);
    for (int i = 0; i < 2; ++i) {
      const auto file = MappedFile::open(path);
      ASSERT_EQ(file->size_bytes(), size);
      EXPECT_TRUE(std::equal(text.begin(), text.end(), reinterpret_cast<const char*>(file->data())));
      if (size >= kHugePage_bytes) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file->data()) % kHugePage_bytes, 0U);
      }
      // Then the second round reads what it left. What it promises comes true when the file is read.
      if (cache_in_huge_pages(path)) {
        EXPECT_TRUE(cache_in_huge_pages(path));
      }
    }
  }
}

TEST(MappedFile, CacheInHugePagesNeverFails) {
  const TempDir dir;
  EXPECT_FALSE(cache_in_huge_pages(dir / "absent"));
  EXPECT_FALSE(cache_in_huge_pages(dir.path()));
  EXPECT_FALSE(cache_in_huge_pages(dir.write("small", "x")));
  EXPECT_FALSE(cache_in_huge_pages("/dev/zero"));
}

TEST(MappedFile, EmptyFile) {
  const TempDir dir;
  const auto file = MappedFile::open(dir.write("empty", ""));
  EXPECT_EQ(file->size_bytes(), 0u);
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_EQ(read_text_file(dir / "empty"), "");
}

TEST(MappedFile, OnlyRegularFiles) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "folder.safetensors");
  EXPECT_THAT(error_of([&] { MappedFile::open(dir / "folder.safetensors"); }), HasSubstr("a folder"));
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  const test::OpenWatch watch(dir / "fifo");
  EXPECT_THAT(error_of([&] { MappedFile::open(dir / "fifo"); }), HasSubstr("a FIFO"));  // and does not hang
  EXPECT_FALSE(watch.saw_open());
  EXPECT_THAT(error_of([&] { MappedFile::open("/dev/zero"); }), HasSubstr("a device"));
  EXPECT_THAT(error_of([&] { read_text_file("/dev/stdin"); }).size(), testing::Gt(0u));
  EXPECT_THAT(error_of([&] { MappedFile::open(dir / "absent"); }, ErrorCode::kNotFound), HasSubstr("absent"));
  EXPECT_THAT(error_of([&] { MappedFile::open(dir / "a/b"); }, ErrorCode::kNotFound), HasSubstr("a/b"));
  std::filesystem::create_symlink("loop", dir / "loop");
  error_of([&] { MappedFile::open(dir / "loop"); }, ErrorCode::kIo);
}

TEST(MappedFile, SizeLimit) {
  const TempDir dir;
  dir.write("five", "12345");
  EXPECT_EQ(read_text_file(dir / "five", 5), "12345");
  EXPECT_THAT(error_of([&] { read_text_file(dir / "five", 4); }), HasSubstr("five"));
}

// What lies under the temporary name already is neither written to nor followed nor removed.
TEST(WriteFile, TemporaryNamesAreNewFiles) {
  const TempDir dir;
  const std::string name = fmt::format(".a.txt.{}.partial", ::getpid());
  dir.write("victim.txt", "untouched");
  std::filesystem::create_symlink(dir / "victim.txt", dir / name);
  write_text_file(dir / "a.txt", "new");
  EXPECT_EQ(read_text_file(dir / "a.txt"), "new");
  EXPECT_EQ(read_text_file(dir / "victim.txt"), "untouched");
  EXPECT_TRUE(std::filesystem::is_symlink(dir / name));
  std::filesystem::remove(dir / name);
  dir.write(name, "of a program that died");
  write_text_file(dir / "a.txt", "newer");
  EXPECT_EQ(read_text_file(dir / "a.txt"), "newer");
  EXPECT_EQ(read_text_file(dir / name), "of a program that died");
}

TEST(WriteFile, ReplacesAtOnceAndLeavesNothingBehind) {
  const TempDir dir;
  write_text_file(dir / "x", "one");
  write_text_file(dir / "x", "two");
  EXPECT_EQ(read_text_file(dir / "x"), "two");
  std::filesystem::create_directory(dir / "folder");
  error_of([&] { write_text_file(dir / "folder", "x"); }, ErrorCode::kInvalidFile);
  EXPECT_THROW(write_text_file(dir / "absent/x", "x"), Error);
  std::size_t n_files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) ++n_files;
  EXPECT_EQ(n_files, 2u);  // x and folder
}

}  // namespace
}  // namespace triptych
