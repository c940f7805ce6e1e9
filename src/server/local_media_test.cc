#include "server/local_media.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>

#include "base/error.h"

namespace triptych::server {
namespace {

TEST(FileUrl, IsAPathOfThisMachine) {
  EXPECT_EQ(path_of_file_url("file:///a/b%20c.png"), "/a/b c.png");
  EXPECT_EQ(path_of_file_url("file://localhost/a"), "/a");
  for (const char* url : {"file:a", "file://host/a", "file://", "file:///a%00b", "file:///%4"})
    EXPECT_THROW(path_of_file_url(url), Error) << url;
}

TEST(LocalMedia, StaysInItsFolder) {
  std::string name = (std::filesystem::temp_directory_path() / "local-media-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path top = std::filesystem::canonical(name);
  const std::filesystem::path root = top / "in";
  std::filesystem::create_directories(root / "sub");
  std::ofstream(root / "sub/a.txt") << "inside";
  std::ofstream(top / "secret") << "outside";
  std::filesystem::create_symlink("../secret", root / "link");
  std::filesystem::create_symlink("sub/a.txt", root / "inner");
  ASSERT_EQ(mkfifo((root / "fifo").c_str(), 0600), 0);
  const auto read = [&](const std::filesystem::path& path) {
    return read_local_media(root, path.string(), 100);
  };
  EXPECT_EQ(read(root / "sub/a.txt"), "inside");
  EXPECT_EQ(read_local_media(root, (root / "sub").string() + "/../sub/a.txt", 100), "inside");
  for (const std::string& path :
       {(top / "secret").string(), root.string() + "/../secret", (root / "link").string(),
        (root / "inner").string(), (root / "fifo").string(), (root / "sub").string(),
        (root / "none").string(), root.string() + "x", root.string() + "/", std::string("/etc/passwd"),
        std::string("/proc/self/root")}) {
    try {
      read(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound) << path;
    }
  }
  EXPECT_THROW(read_local_media(root, (root / "sub/a.txt").string(), 3), Error);
  std::filesystem::remove_all(top);
}

}  // namespace
}  // namespace triptych::server
