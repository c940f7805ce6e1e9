#include "cli/line_completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace triptych::cli {
namespace {

using testing::ElementsAre;

class LineCompletionTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "triptych-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* file : {"größe.png", "two words.png", "two worlds.png", ".hidden", "it's.png"})
      std::ofstream(folder_ / file) << "x";
    std::filesystem::create_directories(folder_ / "frames");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  LineCompletion after(const std::string& line) const { return complete_line(line, folder_.string()); }
  std::filesystem::path folder_;
};

TEST_F(LineCompletionTest, Commands) {
  EXPECT_EQ(after("/im").rest, "age ");
  EXPECT_EQ(after("/q").rest, "uit");
  EXPECT_THAT(after("/").choices, testing::Contains("/reset"));
  EXPECT_EQ(after("/nothing").rest, "");
  EXPECT_EQ(after("im").rest, "");
  EXPECT_TRUE(after("").choices.empty());
}

TEST_F(LineCompletionTest, Files) {
  const std::string at = "/image " + folder_.string() + "/";
  EXPECT_EQ(after(at + "gr").rest, "öße.png");
  EXPECT_EQ(after(at + "fr").rest, "ames/");
  EXPECT_EQ(after(at + "x").rest, "");
  EXPECT_EQ(after(at + ".h").rest, "idden");
  EXPECT_THAT(after(at).choices,
              ElementsAre("frames/", "größe.png", "it's.png", "two words.png", "two worlds.png"));
  EXPECT_EQ(after("/video   ~/fr").rest, "ames/");
}

TEST_F(LineCompletionTest, BlanksAreWrittenAsTheNameBegan) {
  EXPECT_EQ(after("/image ~/tw").rest, "o\\ wor");
  EXPECT_EQ(after("/image ~/two\\ word").rest, "s.png");
  EXPECT_EQ(after("/image \"~/tw").rest, "o wor");
  EXPECT_EQ(after("/image '~/two wor").choices.size(), 2U);
  EXPECT_EQ(after("/image '~/two word").rest, "s.png'");
  EXPECT_EQ(after("/image ~/it").rest, "\\'s.png");
}

// Two names that differ in the second byte of a character.
TEST_F(LineCompletionTest, NeverHalfACharacter) {
  std::ofstream(folder_ / "aä") << "x";
  std::ofstream(folder_ / "aö") << "x";
  const LineCompletion found = after("/image ~/a");
  EXPECT_EQ(found.rest, "");
  EXPECT_THAT(found.choices, ElementsAre("aä", "aö"));
}

TEST_F(LineCompletionTest, WhatIsCompletedNamesTheFile) {
  for (const std::string begun : {"~/gr", "~/it", "~/two\\ word", "'~/two world", "\"~/two word", "\"~/it"}) {
    const std::string name = file_argument(begun + after("/image " + begun).rest, folder_.string());
    EXPECT_TRUE(std::filesystem::is_regular_file(name)) << begun << " -> " << name;
  }
}

TEST_F(LineCompletionTest, Arguments) {
  const std::string home = folder_.string();
  EXPECT_EQ(file_argument("~/two words.png", home), home + "/two words.png");
  EXPECT_EQ(file_argument("~/two\\ words.png", home), home + "/two words.png");
  EXPECT_EQ(file_argument("'~/two words.png'", home), home + "/two words.png");
  EXPECT_EQ(file_argument("\"a \\\"b\\\".png\"", home), "a \"b\".png");
  EXPECT_EQ(file_argument("~", home), home);
  EXPECT_EQ(file_argument("~other/x", home), "~other/x");
  EXPECT_EQ(file_argument("no such file.png", home), "no such file.png");
  EXPECT_THROW(file_argument("'x", home), Error);
  EXPECT_THROW(file_argument("\"x\\\"", home), Error);
  EXPECT_THROW(file_argument("'x' y", home), Error);
  std::ofstream(folder_ / "back\\slash") << "x";
  EXPECT_EQ(file_argument("~/back\\slash", home), home + "/back\\slash");
}

}  // namespace
}  // namespace triptych::cli
