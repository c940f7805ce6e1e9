// run --jsonl: many questions in one process.
#include <fmt/core.h>

#include <map>

#include "e2e/json_schema.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class JsonLines : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* scene : {"scene0.png", "scene1.png", "scene2.png"})
      std::filesystem::copy(kScenes / scene, scratch_.path() / scene);
  }
  std::string in() const { return (scratch_.path() / "in.jsonl").string(); }
  std::string out() const { return (scratch_.path() / "out.jsonl").string(); }
  RunResult run(const std::string& lines, std::vector<std::string> more = {}) const {
    write_file(in(), lines);
    more.insert(more.begin(), {"run", kModel.string(), "--jsonl", in(), out()});
    return triptych(more);
  }
  // The lines of OUT by their number; each is as its schema says.
  std::map<int, json> answers() const {
    std::map<int, json> found;
    std::istringstream lines(read_file(out()));
    for (std::string line; std::getline(lines, line);) {
      const json one = json::parse(line);
      EXPECT_EQ(document_problem(one), "") << line;
      EXPECT_TRUE(found.emplace(one["line"], one).second) << line;
    }
    return found;
  }
  Scratch scratch_;
};

TEST_F(JsonLines, AnswersAreThoseOfEachQuestionAlone) {
  const std::string question = "Describe the image.";
  std::string lines;
  for (int i = 0; i < 3; ++i)
    lines += json{{"id", i}, {"image", fmt::format("scene{}.png", i)}, {"prompt", question}}.dump() + "\n\n";
  const RunResult result = run(lines, {"--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const json summary = json::parse(result.out);
  EXPECT_EQ(document_problem(summary), "");
  EXPECT_EQ(summary["answered"], 3);
  const auto found = answers();
  ASSERT_EQ(found.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const json& one = found.at(2 * i + 1);
    EXPECT_EQ(one["id"], i);
    EXPECT_EQ(one["text"].get<std::string>() + "\n",
              triptych({"run", kModel.string(), "--image", (kScenes / fmt::format("scene{}.png", i)).string(),
                        "--prompt", question})
                  .out);
    EXPECT_GT(one["timings"]["first_token_ms"], 0.0);
  }
}

TEST_F(JsonLines, ABadLineGetsAnErrorAndTheRestGoesOn) {
  const RunResult result =
      run("{\"id\": \"a\", \"prompt\": \"Hi\", \"max_tokens\": 2}\n"
          "{\"id\": \"b\", \"prompt\": \n"
          "{\"id\": \"c\", \"prompt\": \"x\", \"images\": [\"nothing.png\"]}\n"
          "{\"id\": \"d\", \"image\": \"scene1.png\"}\n"
          "[]\n"
          "{\"id\": \"f\", \"promt\": \"x\"}\n"
          "{\"id\": \"g\", \"prompt\": \"x\", \"max_tokens\": 0}\n"
          "{\"id\": \"h\", \"images\": [\"scene1.png\", \"scene0.png\"], \"prompt\": \"Is the star small or "
          "large?\", "
          "\"max_tokens\": 3}");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("2 answered, 6 failed"));
  const auto found = answers();
  ASSERT_EQ(found.size(), 8U);
  EXPECT_EQ(found.at(1)["token_ids"].size(), 2U);
  EXPECT_EQ(found.at(2)["error"]["code"], "invalid_file");
  EXPECT_EQ(found.at(2)["id"], nullptr);
  EXPECT_EQ(found.at(3)["error"]["code"], "not_found");
  EXPECT_THAT(found.at(3)["error"]["message"].get<std::string>(), HasSubstr("nothing.png"));
  EXPECT_THAT(found.at(4)["error"]["message"].get<std::string>(), HasSubstr("prompt"));
  EXPECT_THAT(found.at(6)["error"]["message"].get<std::string>(), HasSubstr("unknown member \"promt\""));
  EXPECT_THAT(found.at(7)["error"]["message"].get<std::string>(), HasSubstr("max_tokens"));
  EXPECT_EQ(found.at(8)["usage"]["image_tokens"], 128);
}

TEST_F(JsonLines, LinesSayHowTheyWait) {
  const RunResult result =
      run("{\"prompt\": \"a\", \"max_tokens\": 40, \"priority\": 3, \"tenant\": \"x\"}\n"
          "{\"prompt\": \"b\", \"max_tokens\": 2, \"priority\": -3, \"tenant\": \"y\"}\n"
          "{\"prompt\": \"c\", \"image\": \"scene0.png\", \"max_tokens\": 2, \"timeout_ms\": 600000}\n"
          "{\"prompt\": \"d\", \"priority\": \"high\"}\n"
          "{\"prompt\": \"e\", \"timeout_ms\": 0}\n",
          {"--max-num-seqs", "2", "--max-num-batched-tokens", "64", "--max-num-batched-patches", "100",
           "--max-step-ms", "50", "--memory-limit", "4"});
  EXPECT_EQ(result.exit_code, 1);
  const auto found = answers();
  ASSERT_EQ(found.size(), 5U);
  for (const int line : {1, 2, 3}) EXPECT_EQ(found.at(line).count("error"), 0U) << line;
  EXPECT_THAT(found.at(4)["error"]["message"].get<std::string>(), HasSubstr("priority"));
  EXPECT_THAT(found.at(5)["error"]["message"].get<std::string>(), HasSubstr("timeout_ms"));
  // What could never fit is the line's error, with the numbers.
  const RunResult small =
      run("{\"prompt\": \"a\", \"image\": \"scene0.png\", \"max_tokens\": 2}\n", {"--memory-limit", "0.001"});
  EXPECT_NE(small.exit_code, 0);
  EXPECT_THAT(small.err, HasSubstr("memory limit"));
}

TEST_F(JsonLines, GoesOnWhereAnEarlierRunStopped) {
  const std::string lines =
      "{\"id\": 7, \"prompt\": \"Hi\"}\n{\"prompt\": \"Ho\"}\n{\"id\": \"7\", \"prompt\": \"Ha\"}\n";
  ASSERT_EQ(run(lines, {"--max-tokens", "2"}).exit_code, 0);
  const auto whole = answers();
  ASSERT_EQ(whole.size(), 3U);
  // As if it had been killed within the third line.
  std::string kept = whole.at(2).dump() + "\n" + whole.at(1).dump() + "\n";
  write_file(out(), kept + R"({"schema":"triptych.run_line/1","line":3,"i)");
  ASSERT_EQ(run(lines, {"--max-tokens", "2"}).exit_code, 0);
  EXPECT_TRUE(read_file(out()).starts_with(kept));
  EXPECT_EQ(answers().at(3)["token_ids"], whole.at(3)["token_ids"]);
  // Nothing is left to do, and lines that were put in front do not make others be asked twice when they have
  // ids.
  const std::string before = read_file(out());
  ASSERT_EQ(run(lines).exit_code, 0);
  EXPECT_EQ(read_file(out()), before);
}

TEST_F(JsonLines, StdinAndStdout) {
  const RunResult result =
      triptych({"run", kModel.string(), "--jsonl", "-", "-", "--max-tokens", "2"},
               json{{"prompt", "Is the star small or large?"}, {"image", kScenes / "scene1.png"}}.dump());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json one = json::parse(result.out);
  EXPECT_EQ(document_problem(one), "");
  EXPECT_EQ(one["text"], "small");
}

TEST_F(JsonLines, WhatCannotBeMeant) {
  expect_bad_input(run("{\"id\": 1}\n\n{\"id\": 1}\n"), "lines 1 and 3 have the same id 1");
  EXPECT_FALSE(std::filesystem::exists(out()));
  write_file(out(), "{\"mine\": 1}\n");
  expect_bad_input(run("{\"prompt\": \"x\"}\n"), "out.jsonl:1: expected an answer that --jsonl wrote");
  EXPECT_EQ(read_file(out()), "{\"mine\": 1}\n");
  write_file(out(), "{\"mine\": 1}");
  expect_bad_input(run("{\"prompt\": \"x\"}\n"), "out.jsonl:1: expected an answer that --jsonl wrote");
  EXPECT_EQ(read_file(out()), "{\"mine\": 1}");
  expect_bad_input(run("", {"--prompt", "x"}), "--prompt does not go with --jsonl");
  expect_bad_input(run("", {"--image", "x"}), "--image does not go with --jsonl");
  expect_bad_input(triptych({"run", kModel.string(), "--jsonl", in(), in()}), "names the same file");
  expect_bad_input(triptych({"run", kModel.string(), "--jsonl", "/nowhere/in", out()}), "/nowhere/in");
  expect_bad_input(triptych({"run", kModel.string(), "--jsonl", in()}), "--jsonl");
  std::filesystem::remove(out());
  expect_bad_input(run("{\"prompt\": \"x\"}\n", {"--guided-regex", "("}), "guided_regex");
  EXPECT_EQ(read_file(out()), "") << "a line with an error would not be asked again";
  write_file(in(), "{\"type\": \"integer\"}");
  expect_bad_input(
      triptych({"run", kModel.string(), "--prompt", "x", "--json-schema", in(), "--trace-out", in()}),
      "names the same file");
}

}  // namespace
}  // namespace triptych::test
