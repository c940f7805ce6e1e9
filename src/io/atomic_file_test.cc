#include "io/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "io/mapped_file.h"
#include "io/test_files.h"

namespace triptych {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(AtomicFile, IsWholeOrNotThere) {
  const test::TempDir folder;
  const auto path = folder.path() / "file";
  {
    AtomicFile file(path);
    file.write(bytes_of("half"));
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "nothing is left behind";
  AtomicFile file(path);
  file.write(bytes_of("one "));
  file.write({});
  file.write(bytes_of("two"));
  file.commit();
  EXPECT_EQ(read_text_file(path), "one two");
  {
    AtomicFile next(path);
    next.write(bytes_of("three"));
  }
  EXPECT_EQ(read_text_file(path), "one two") << "what was there stays";
}

TEST(AtomicFile, RefusesWhatItCannotReplace) {
  const test::TempDir folder;
  EXPECT_THROW(AtomicFile{folder.path()}, Error);
  EXPECT_THROW(AtomicFile{folder.path() / "absent" / "file"}, Error);
  AtomicFile file(folder.path() / "file");
  std::filesystem::create_directory(folder.path() / "file");
  file.write(bytes_of("x"));
  EXPECT_THAT([&] { file.commit(); },
              testing::Throws<Error>(testing::Property(&Error::code, ErrorCode::kIo)));
}

}  // namespace
}  // namespace triptych
