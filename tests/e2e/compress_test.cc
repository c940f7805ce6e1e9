// triptych compress: the whole way on the model that ships, the gate, and what is refused.
#include <fstream>

#include <nlohmann/json.hpp>

#include "e2e/json_schema.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::filesystem::path kModel = "assets/models/scenes-llava";
const char* const kData = "assets/eval/scenes-mixed";
const char* const kEval = "assets/eval/scenes";

std::vector<std::string> command(const std::string& out, std::vector<std::string> more) {
  std::vector<std::string> args = {"compress", kModel.string(),         out, "--data",
                                   kData,      "--calibration-samples", "4"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(Compress, WritesADirectoryThatAnswersAndPassesItsGate) {
  const Scratch scratch;
  const std::string out = (scratch.path() / "small").string();
  const RunResult result =
      triptych(command(out, {"--vision-weights", "int4:channel", "--lm-head", "int4:g128", "--eval", kEval,
                             "--eval-limit", "24", "--gate", "accuracy>=-13,kl<=0.1,picture>=20", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["schema"], "triptych.compress/1");
  EXPECT_LT(report["bits_per_weight"], 4.3);
  EXPECT_LT(report["written_bytes"].get<double>(), 0.4 * report["source_bytes"].get<double>());
  EXPECT_EQ(report["calibration"]["samples"], 4);
  EXPECT_EQ(report["gate"].size(), 3U);
  double nearest = 0, made = 0;
  for (const json& linear : report["linears"]) {
    nearest += linear["error_nearest"].get<double>();
    made += linear["error"].get<double>();
  }
  EXPECT_LT(made, 0.5 * nearest);
  EXPECT_EQ(triptych({"inspect", out, "--verify"}).exit_code, 0);
  EXPECT_THAT(
      triptych({"run", out, "--image", "assets/eval/scenes/0000.png", "--prompt", "Describe the image."}).out,
      HasSubstr("circle"));
  // A second one is the same, byte by byte.
  const std::string again = (scratch.path() / "again").string();
  ASSERT_EQ(triptych(command(again, {"--vision-weights", "int4:channel", "--lm-head", "int4:g128",
                                     "--threads", "1"}))
                .exit_code,
            0);
  for (const char* file : {"model.safetensors", "triptych.json"})
    EXPECT_EQ(read_file(std::filesystem::path(out) / file), read_file(std::filesystem::path(again) / file))
        << file;
}

TEST(Compress, TheRecipeInTheDirectoryMakesTheSameDirectory) {
  const Scratch scratch;
  const std::string mine = (scratch.path() / "mine.yaml").string();
  std::ofstream(mine) << "recipe: mine\nformats: {vision: int4:channel}\n"
                         "passes: [fold_residual, {round: {feedback: 0, clip_to: 0.8}}, bias_correction]\n";
  const std::string out = (scratch.path() / "small").string(), again = (scratch.path() / "again").string();
  const RunResult first = triptych(command(out, {"--recipe", mine, "--json"}));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const json report = json::parse(first.out);
  EXPECT_EQ(document_problem(report), "");
  ASSERT_EQ(report["folds"].size(), 2U);
  for (const json& fold : report["folds"]) EXPECT_LE(fold["error_after"], fold["error_before"]);
  EXPECT_GT(report["biases"].size(), 10U);
  EXPECT_EQ(report["front"].size(), 0U);
  const std::string used = out + "/recipe.yaml";
  EXPECT_THAT(read_file(used), HasSubstr("samples: 4"));
  const RunResult second = triptych(
      {"compress", kModel.string(), again, "--data", kData, "--recipe", used, "--threads", "1", "--json"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  for (const char* file : {"model.safetensors", "triptych.json", "recipe.yaml"})
    EXPECT_EQ(read_file(std::filesystem::path(out) / file), read_file(std::filesystem::path(again) / file))
        << file;
}

TEST(Compress, ADryRunTellsAndWritesNothing) {
  const Scratch scratch;
  const std::string out = (scratch.path() / "small").string();
  const RunResult text = triptych(command(out, {"--dry-run", "--recipe", "smallest"}));
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, testing::AllOf(HasSubstr("recipe: \"smallest\""), HasSubstr("fold_residual"),
                                       HasSubstr("4 conversations"), HasSubstr("memory"), HasSubstr("time")));
  const RunResult result = triptych(command(out, {"--dry-run", "--json"}));
  const json plan = json::parse(result.out);
  EXPECT_EQ(document_problem(plan), "");
  EXPECT_LT(plan["estimated_bytes"].get<double>(), plan["source_bytes"].get<double>());
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(Compress, WhatDoesNotPassIsNotWritten) {
  const Scratch scratch;
  const std::string out = (scratch.path() / "small").string();
  const RunResult result = triptych(
      command(out, {"--no-gptq", "--no-equalize", "--eval", kEval, "--eval-limit", "8", "--gate", "kl<=0"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("FAILED"));
  EXPECT_THAT(result.err, HasSubstr("nothing was written"));
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(Compress, WhatCannotBeUsedIsRefused) {
  const Scratch scratch;
  const std::string out = (scratch.path() / "small").string();
  const auto expect_refused = [&](const std::vector<std::string>& more, const char* why) {
    const RunResult result = triptych(command(out, more));
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_THAT(result.err, HasSubstr(why));
    EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  };
  expect_refused({"--eval", kData}, "--allow-overlap");
  expect_refused({"--eval", kEval, "--gate", "speed>=2"}, "--gate");
  expect_refused({"--weights", "int5"}, "int5");
  expect_refused({"--recipe", "tiny"}, "balanced, smallest, fastest");
  expect_refused({"--recipe", "CHANGELOG.md"}, "CHANGELOG.md");
  expect_refused({"--choices", "int8"}, "--bits, --budget or --max-loss");
  expect_refused({"--budget", "4.4G"}, "4.4GB");
  expect_refused({"--budget", "100KB"}, "take at least");
  expect_refused({"--bits", "3"}, "take at least");
  const RunResult empty =
      triptych({"compress", kModel.string(), out, "--data", "assets/models/scenes-llava"});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("questions.jsonl"));
}

}  // namespace
}  // namespace triptych::test
