#include "evaluation/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "io/safetensors.h"

namespace triptych {
namespace {

class GoldenTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(testing::TempDir()) /
                 ("golden_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) { std::ofstream(directory_ / name) << text; }
  std::string error_of() {
    try {
      read_golden(directory_);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path directory_;
};

TEST_F(GoldenTest, ANameThatIsTooLongIsNoFault) {
  try {
    find_golden(directory_ / std::string(5000, 'a'));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("no golden.json in "));
  }
}

TEST_F(GoldenTest, PartsAreTextsOrPicturesThatExist) {
  write("a.png", "x");
  write(
      "golden.json",
      R"({"reference": "r", "cases": [{"name": "one", "parts": ["a.png", "b.png", "What?", {"text": "a.png"}, {"image": "z"}],
            "prompt": "p", "input_ids": [1, 2], "generated_ids": [3], "margins": [0.5], "text": "t", "video": true, "fps": 2}]})");
  std::vector<float> logits{1, 2, 3, 4};
  std::vector<float> tap{5, 6};
  write_safetensors(directory_ / "one.safetensors",
                    {{"logits", TensorView(logits.data(), DType::kF32, {2, 2})},
                     {"tap.a.b", TensorView(tap.data(), DType::kF32, {1, 2})},
                     {"input.pixel_values", TensorView(tap.data(), DType::kF32, {1, 2})}});
  const GoldenSet set = read_golden(directory_);
  ASSERT_EQ(set.cases.size(), 1U);
  const GoldenCase& one = set.cases[0];
  ASSERT_EQ(one.parts.size(), 5U);
  EXPECT_TRUE(one.parts[0].is_picture);
  EXPECT_FALSE(one.parts[1].is_picture);  // no such file: a text
  EXPECT_FALSE(one.parts[2].is_picture);
  EXPECT_FALSE(one.parts[3].is_picture);
  EXPECT_TRUE(one.parts[4].is_picture);
  EXPECT_TRUE(one.is_video);
  EXPECT_EQ(one.frames_per_s, 2.0);
  EXPECT_EQ(one.input_ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(one.logits->shape(), (Shape{2, 2}));
  EXPECT_FALSE(one.step_logits.has_value());
  ASSERT_EQ(one.taps.size(), 1U);
  EXPECT_EQ(one.taps[0].name, "a.b");
  ASSERT_EQ(one.inputs.size(), 1U);
  EXPECT_EQ(one.inputs[0].name, "pixel_values");
}

TEST_F(GoldenTest, OneFileForAllCases) {
  write("golden.json", R"({"source": "s", "cases": [{"name": "one", "content": ["Hi"], "generated_ids": [3]},
                                                    {"name": "two", "content": ["Ho"], "generated_ids": [4]}]})");
  std::vector<float> logits{1, 2};
  std::vector<std::int64_t> ids{7, 8};
  write_safetensors(directory_ / "golden.safetensors",
                    {{"one.logits", TensorView(logits.data(), DType::kF32, {1, 2})},
                     {"one.input_ids", TensorView(ids.data(), DType::kI64, {2})},
                     {"two.vision.output", TensorView(logits.data(), DType::kF32, {1, 2})}});
  const GoldenSet set = read_golden(directory_);
  EXPECT_EQ(set.reference, "s");
  ASSERT_EQ(set.cases.size(), 2U);
  EXPECT_EQ(set.cases[0].input_ids, (std::vector<std::int32_t>{7, 8}));
  EXPECT_TRUE(set.cases[0].logits.has_value());
  EXPECT_TRUE(set.cases[0].taps.empty());
  ASSERT_EQ(set.cases[1].taps.size(), 1U);
  EXPECT_EQ(set.cases[1].taps[0].name, "vision.output");
  EXPECT_FALSE(set.cases[1].prompt.has_value());
}

TEST_F(GoldenTest, ErrorsNameFileAndField) {
  EXPECT_THAT(error_of(), testing::HasSubstr("golden.json"));
  write("golden.json", R"({"cases": []})");
  EXPECT_THAT(error_of(), testing::HasSubstr("golden.json: cases"));
  write("golden.json", R"({"cases": [{"name": "../x", "parts": []}]})");
  EXPECT_THAT(error_of(), testing::HasSubstr("cases[0].name"));
  write("golden.json", R"({"cases": [{"name": "x", "parts": [{"image": "/etc/passwd"}]}]})");
  EXPECT_THAT(error_of(), testing::HasSubstr("image"));
  write("golden.json", R"({"cases": [{"name": "x", "parts": ["hi"], "input_ids": [-1]}]})");
  EXPECT_THAT(error_of(), testing::HasSubstr("input_ids[0]"));
  write("golden.json", R"({"cases": [{"name": "x", "parts": ["hi"]}]})");
  EXPECT_THAT(error_of(), testing::HasSubstr("x.safetensors"));
  std::vector<float> odd{1, 2};
  write_safetensors(directory_ / "x.safetensors", {{"logits", TensorView(odd.data(), DType::kF32, {2})}});
  EXPECT_THAT(error_of(), testing::HasSubstr("logits:"));
}

TEST_F(GoldenTest, IsFoundBesideTheModelOrInItsFolder) {
  EXPECT_THROW(find_golden(directory_), Error);
  std::filesystem::create_directories(directory_ / "golden");
  write("golden/golden.json", "{}");
  EXPECT_EQ(find_golden(directory_), directory_ / "golden");
  write("golden.json", "{}");
  EXPECT_EQ(find_golden(directory_), directory_);
}

}  // namespace
}  // namespace triptych
