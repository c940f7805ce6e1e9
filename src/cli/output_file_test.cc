#include "cli/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "base/error.h"
#include "io/mapped_file.h"

namespace triptych::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class OutputFile : public testing::Test {
 protected:
  OutputFile() {
    std::string pattern = (fs::temp_directory_path() / "triptych-output-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = pattern;
  }
  ~OutputFile() override { fs::remove_all(folder_); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string file(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
    return path(name);
  }
  // The message, which begins with the flag; "" when the file could be written.
  std::string refusal(const std::string& name, const std::vector<NamedPath>& others = {}) const {
    try {
      check_output("--out", name, others);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("--out: "));
      EXPECT_THAT(error.what(), HasSubstr(name));
      return error.what();
    }
    return "";
  }
  fs::path folder_;
};

TEST_F(OutputFile, ReplacesAFileWholeAndLeavesNothingBeside) {
  const std::string name = file("x", "before");
  EXPECT_EQ(refusal(name), "");
  EXPECT_EQ(read_text_file(name), "before");
  write_output("--out", name, "after");
  EXPECT_EQ(read_text_file(name), "after");
  const std::string longest = path(std::string(230, 'n'));
  EXPECT_EQ(refusal(longest), "");
  write_output("--out", longest, "long");
  EXPECT_EQ(read_text_file(longest), "long");
  EXPECT_EQ(refusal(path("new")), "");
  write_output("--out", path("new"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 3);
}

TEST_F(OutputFile, WhatCannotBeWrittenIsKnownBefore) {
  EXPECT_THAT(refusal(""), HasSubstr("the name of a file"));
  EXPECT_THAT(refusal(folder_.string()), HasSubstr("it is a folder"));
  EXPECT_THAT(refusal(path("")), HasSubstr("folder"));
  EXPECT_THAT(refusal(path("new/")), HasSubstr("folder"));
  EXPECT_THAT(refusal(path("absent/x")), HasSubstr("there is no folder " + path("absent")));
  EXPECT_THAT(refusal(file("x", "") + "/y"), HasSubstr("there is no folder " + path("x")));
  EXPECT_THAT(refusal(path(std::string(231, 'n'))), HasSubstr("a name may have 230 bytes"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal(path("fifo")), HasSubstr("it is a FIFO"));
  EXPECT_FALSE(fs::exists(path("new")));
  if (::geteuid() == 0) return;  // may write anything
  fs::permissions(path("x"), fs::perms::owner_read);
  EXPECT_THAT(refusal(path("x")), HasSubstr("Permission denied"));
}

TEST_F(OutputFile, AnInputIsNeverReplaced) {
  const std::string picture = file("a.png", "picture"), weights = file("model/model.safetensors", "weights");
  const std::vector<NamedPath> inputs = {{"MODEL", path("model")}, {"--image", "-"}, {"--image", picture}};
  EXPECT_THAT(refusal(picture, inputs), HasSubstr("--image names the same file"));
  EXPECT_THAT(refusal(path("model/../a.png"), inputs), HasSubstr("--image"));
  fs::create_symlink(picture, path("link.png"));
  EXPECT_THAT(refusal(path("link.png"), inputs), HasSubstr("--image"));
  EXPECT_THAT(refusal(weights, inputs), HasSubstr("it is a file of MODEL " + path("model")));
  // As in the cache of a hub: the folder holds links.
  const std::string blob = file("blobs/1234", "weights");
  fs::create_symlink(blob, path("model/other.safetensors"));
  EXPECT_THAT(refusal(blob, inputs), HasSubstr("it is a file of MODEL"));
  EXPECT_EQ(refusal(path("model/report.html"), inputs), "");  // a new one
  EXPECT_EQ(refusal(path("b.png"), inputs), "");
  // Two outputs of one name, neither of which exists.
  EXPECT_THAT(refusal(path("b.png"), {{"--trace-out", path("./b.png")}}), HasSubstr("--trace-out names"));
}

TEST_F(OutputFile, ALinkStaysALink) {
  const std::string target = file("target", "before");
  fs::create_symlink(target, path("link"));
  write_output("--out", path("link"), "after");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_text_file(target), "after");
}

TEST_F(OutputFile, AFailureNamesTheFlagAndLosesNothing) {
  const std::string name = file("x", "before");
  try {
    with_flag("--out", [&] { fail(ErrorCode::kIo, "{}: cannot write: no space", name); });
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "--out: " + name + ": cannot write: no space");
  }
  EXPECT_THROW(write_output("--out", path("absent/x"), "x"), Error);
  EXPECT_EQ(read_text_file(name), "before");
}

}  // namespace
}  // namespace triptych::cli
