#include "io/folder_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "base/error.h"
#include "io/checkpoint.h"

namespace triptych {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\noid "
    "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 4991436760\n";

class FolderKind : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "triptych-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    at_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(at_); }
  void write(const std::filesystem::path& name, const std::string& text) const {
    std::filesystem::create_directories((at_ / name).parent_path());
    std::ofstream(at_ / name, std::ios::binary) << text;
  }
  std::string refused(const std::filesystem::path& path) const {
    try {
      Checkpoint::open(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "opened";
  }
  std::filesystem::path at_;
};

TEST_F(FolderKind, NamesOfTheHubGetTheCommandThatFetchesThem) {
  const char* const command = "`hf download llava-hf/llava-1.5-7b-hf --local-dir llava-1.5-7b-hf`";
  for (const char* name : {"llava-hf/llava-1.5-7b-hf", "https://huggingface.co/llava-hf/llava-1.5-7b-hf",
                           "https://huggingface.co/llava-hf/llava-1.5-7b-hf/tree/main",
                           "huggingface.co/llava-hf/llava-1.5-7b-hf?x=1"})
    EXPECT_THAT(refused(name), HasSubstr(command)) << name;
  for (const char* name : {"/models/llava", "./models/llava", "../llava", "models", "a/b/c",
                           "https://huggingface.co/", "a b/c", "~/llava", "https://example.org/a"})
    EXPECT_THAT(refused(name), Not(HasSubstr("hf download"))) << name;
}

TEST_F(FolderKind, Gguf) {
  write("m/model-Q4_K_M.gguf", "GGUF\3");
  write("renamed", "GGUF\3");
  for (const char* name : {"m", "m/model-Q4_K_M.gguf", "renamed"})
    EXPECT_THAT(refused(at_ / name), testing::AllOf(HasSubstr("GGUF"), HasSubstr("config.json"))) << name;
}

TEST_F(FolderKind, CacheOfTheHub) {
  write("hub/models--a--b/blobs/1", "x");
  write("hub/models--a--b/snapshots/111/config.json", "{}");
  write("hub/models--a--b/snapshots/222/config.json", "{}");
  EXPECT_THAT(refused(at_ / "hub/models--a--b"), HasSubstr("models--a--b/snapshots/111"));
  write("hub/models--a--b/refs/main", "222");
  EXPECT_THAT(refused(at_ / "hub/models--a--b"), HasSubstr("models--a--b/snapshots/222"));
  EXPECT_THAT(refused(at_ / "hub"), HasSubstr("models--a--b/snapshots/222"));
  write("hub/models--a--b/refs/main", "../../../../etc");
  EXPECT_THAT(refused(at_ / "hub/models--a--b"), HasSubstr("models--a--b/snapshots/111"));
}

TEST_F(FolderKind, AFileOfACheckpointOrItsParent) {
  write("m/config.json", "{}");
  EXPECT_THAT(refused(at_ / "m/config.json"), HasSubstr("give its folder"));
  EXPECT_THAT(refused(at_), HasSubstr("there is one in"));
  write("alone/x", "");
  EXPECT_THAT(refused(at_ / "alone"), HasSubstr("config.json is missing"));
}

TEST_F(FolderKind, PointersOfGitLfs) {
  EXPECT_TRUE(is_lfs_pointer(kPointer));
  EXPECT_FALSE(is_lfs_pointer("version 1"));
  write("m/config.json", "{}");
  write("m/model.safetensors", kPointer);
  EXPECT_THAT(refused(at_ / "m"), testing::AllOf(HasSubstr("\"model.safetensors\": a pointer of git-lfs to a "
                                                           "file that was not fetched (4991436760 bytes)"),
                                                 HasSubstr("git lfs pull")));
  std::filesystem::remove(at_ / "m/model.safetensors");
  write("m/pytorch_model.bin", kPointer);
  EXPECT_THAT(refused(at_ / "m"), HasSubstr("\"pytorch_model.bin\": a pointer of git-lfs"));
  write("m/config.json", kPointer);
  EXPECT_THAT(refused(at_ / "m"), HasSubstr("\"config.json\": a pointer of git-lfs"));
}

}  // namespace
}  // namespace triptych
