// Files that flags name for writing: never an input, never half of one.
#include <nlohmann/json.hpp>

#include "e2e/program.h"
#include "support/fixed_answer.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kStar = (kScenes / "scene1.png").string();

class OutputTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }
  Scratch scratch_;
};

TEST_F(OutputTest, DrawDoesNotReplaceThePictureItReads) {
  const std::string model = path("fuyu"), picture = path("star.png");
  write_fuyu(model, kSource, {"\u2581at", "<0x00>", "10", "20", "30", "40", "<0x01>", "."});
  std::filesystem::copy_file(kStar, picture);
  const std::vector<std::string> ask = {"run", model, "--image", picture, "--prompt", "Where?\n", "--draw"};
  const auto draw = [&](const std::string& file, std::vector<std::string> more = {}) {
    std::vector<std::string> args = ask;
    args.push_back(file);
    args.insert(args.end(), more.begin(), more.end());
    return triptych(args);
  };
  expect_bad_input(draw(picture), "--draw: " + picture + ": cannot write: --image names the same file");
  expect_bad_input(draw(model + "/model.safetensors"), "it is a file of MODEL " + model);
  expect_bad_input(draw(path("both"), {"--trace-out", path("both")}), "--trace-out names the same file");
  expect_bad_input(draw(""), "--draw: expected a value");
  EXPECT_EQ(read_file(picture), read_file(kStar));
  write_file(path("drawn.png"), "an older one");
  const RunResult result = draw(path("drawn.png"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(read_file(path("drawn.png")), testing::StartsWith("\x89PNG"));
}

TEST_F(OutputTest, TraceDoesNotReplaceTheModel) {
  const auto model = scratch_.copy_of(kModel, "model");
  const std::string weights = (model / "model.safetensors").string();
  const auto trace = [&](const std::string& file) {
    return triptych({"trace", model.string(), "--image", kStar, "--prompt", "x", "--out", file});
  };
  expect_bad_input(trace(weights), "--out: " + weights + ": cannot write: it is a file of MODEL");
  expect_bad_input(trace(path("")), "--out: " + path("") + ": ");
  expect_bad_input(trace(path("absent/x")), "there is no folder " + path("absent"));
  EXPECT_EQ(read_file(weights), read_file(kModel / "model.safetensors"));
}

TEST_F(OutputTest, ATraceOfZonesIsThereWhenTheRunIsDone) {
  write_file(path("trace.json"), "an older one");
  const std::string star = path("star.png");
  std::filesystem::copy_file(kStar, star);
  const auto run = [&](const std::string& prompt, const std::string& file) {
    return triptych({"run", kModel.string(), "--image", star, "--prompt", prompt, "--trace-out", file});
  };
  expect_bad_input(run("caf\xe9", path("trace.json")), "UTF-8");
  EXPECT_EQ(read_file(path("trace.json")), "an older one");
  expect_bad_input(run("x", star), "--trace-out: " + star + ": cannot write: --image names the same file");
  EXPECT_EQ(run("Is it small?", path("trace.json")).exit_code, 0);
  EXPECT_TRUE(json::parse(read_file(path("trace.json"))).is_array());
}

TEST_F(OutputTest, BenchDoesNotReplaceWhatItComparesWith) {
  write_file(path("earlier.json"), "{}");
  expect_bad_input(
      triptych({"bench", kModel.string(), "--compare", path("earlier.json"), "--html", path("earlier.json")}),
      "--html: " + path("earlier.json") + ": cannot write: --compare names the same file");
  write_file(path("record"), "triptych-allocations 1\na 0 buffer 100\nf 0\n");
  expect_bad_input(triptych({"bench", "--memory", "--replay-allocations", path("record"),
                             "--trace-allocations", path("record")}),
                   "--replay-allocations names the same file");
  EXPECT_EQ(read_file(path("earlier.json")), "{}");
}

TEST_F(OutputTest, ConvertReplacesConvertedCheckpointsOnly) {
  std::filesystem::create_directory(path("models"));
  const auto model = scratch_.copy_of(kModel, "models/small");
  const auto convert = [&](const std::string& out) {
    return triptych({"convert", model.string(), out, "--weights", "int8", "--force"});
  };
  expect_bad_input(convert(path("models")), "it is or holds the checkpoint " + model.string());
  expect_bad_input(convert(model.string()), "it is or holds the checkpoint");
  std::filesystem::create_directory(path("thesis"));
  write_file(path("thesis/text"), "years of work");
  expect_bad_input(convert(path("thesis")), "holds no converted checkpoint");
  EXPECT_EQ(read_file(path("thesis/text")), "years of work");
  std::filesystem::create_directory(path("empty"));
  EXPECT_EQ(convert(path("empty")).exit_code, 0);
  EXPECT_EQ(convert(path("empty")).exit_code, 0);
}

}  // namespace
}  // namespace triptych::test
