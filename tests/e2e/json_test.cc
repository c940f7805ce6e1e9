// --json of every verb, as docs/json.md and docs/schemas describe it.
#include "e2e/json_schema.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kStar = (kScenes / "scene1.png").string();

// The one document that the verb prints, with the name it should have.
json document_of(const std::vector<std::string>& args, const std::string& name, int exit_code = 0) {
  const RunResult result = triptych(args);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  const json out = json::parse(result.out, nullptr, false);
  EXPECT_EQ(document_problem(out), "") << args.front();
  EXPECT_EQ(out.value("schema", ""), "triptych." + name + "/1");
  return out;
}

TEST(JsonSchema, TheCheckerFindsWhatIsWrong) {
  const json schema = json::parse(R"({"type": "object", "required": ["a"], "additionalProperties": false,
      "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "array", "items": {"$ref": "#/$defs/x"}}},
      "$defs": {"x": {"enum": ["p", null]}}})");
  EXPECT_EQ(schema_problem(json::parse(R"({"a": 1, "b": ["p", null]})"), schema), "");
  EXPECT_THAT(schema_problem(json::parse(R"({"a": 1.0})"), schema), HasSubstr("$.a: expected"));
  EXPECT_THAT(schema_problem(json::parse(R"({"a": -1})"), schema), HasSubstr("below"));
  EXPECT_THAT(schema_problem(json::parse("{}"), schema), HasSubstr("no \"a\""));
  EXPECT_THAT(schema_problem(json::parse(R"({"a": 1, "c": 1})"), schema),
              HasSubstr("\"c\" is not in the schema"));
  EXPECT_THAT(schema_problem(json::parse(R"({"a": 1, "b": ["q"]})"), schema), HasSubstr("$.b[0]"));
  EXPECT_THAT(schema_problem(json::parse("1"), json::parse(R"({"pattern": "x"})")), HasSubstr("pattern"));
}

TEST(Json, EverySchemaIsInTheDocument) {
  const std::string page = read_file(kSource / "docs/json.md");
  std::size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "docs/schemas")) {
    const json schema = json::parse(read_file(entry.path()));
    const std::string name = schema["properties"]["schema"]["const"];
    EXPECT_THAT(page, HasSubstr("`" + name + "`"));
    EXPECT_THAT(page, HasSubstr("(schemas/" + entry.path().filename().string() + ")"));
    ++n;
  }
  EXPECT_EQ(n, 21U);
}

TEST(Json, EveryVerbHasTheFlag) {
  const json help = json::parse(triptych({"help", "--json"}).out);
  ASSERT_GT(help["verbs"].size(), 9U);
  for (const json& verb : help["verbs"]) {
    if (verb["name"] == "") continue;
    const auto& options = verb["options"];
    EXPECT_TRUE(std::any_of(options.begin(), options.end(), [](const json& option) {
      return option["names"] == json::array({"--json"});
    })) << verb["name"];
  }
}

TEST(Json, Run) {
  const std::vector<std::string> ask = {"run",      kModel.string(),       "--image", kStar,
                                        "--prompt", "Describe the image.", "--json"};
  document_of(ask, "run");
  std::vector<std::string> all = ask;
  all.insert(all.end(), {"--logprobs", "2", "--profile", "--stop", " at", "--max-tokens", "20"});
  EXPECT_TRUE(document_of(all, "run").contains("profile"));
  const RunResult chat = triptych({"run", kModel.string(), "--json"}, "Hi\nHo\n");
  std::istringstream lines(chat.out);
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(document_problem(json::parse(line)), "");
}

TEST(Json, InspectConvertAndTrace) {
  const Scratch scratch;
  document_of({"inspect", kModel.string(), "--json", "--tensors"}, "inspect");
  const std::string out = (scratch.path() / "int8").string();
  const json converted =
      document_of({"convert", kModel.string(), out, "--weights", "int8", "--json"}, "convert");
  EXPECT_GT(converted["linears_quantized"], 0);
  EXPECT_LT(converted["written_bytes"], converted["source_bytes"]);
  const json inspected = document_of({"inspect", out, "--json", "--verify"}, "inspect");
  EXPECT_EQ(inspected["checksums"], "sound");
  EXPECT_TRUE(inspected["quantized"]["stored"]);
  const std::string file = (scratch.path() / "x.safetensors").string();
  const json trace =
      document_of({"trace", kModel.string(), "--prompt", "x", "--out", file, "--json"}, "trace");
  EXPECT_EQ(trace["file"], file);
  EXPECT_EQ(trace["tensors"][0]["name"], "input_ids");
  EXPECT_EQ(trace["tensors"][0]["dtype"], "I64");
  // What cannot be run is a result of inspect, no error.
  const auto copy = scratch.copy_of(kModel, "m");
  json config = json::parse(read_file(copy / "config.json"));
  config["architectures"] = {"LlavaForConditionalGenerationX"};
  write_file(copy / "config.json", config.dump());
  EXPECT_FALSE(document_of({"inspect", copy.string(), "--json"}, "inspect", 1)["supported"]);
}

TEST(Json, VerifyAndEval) {
  document_of({"verify", kModel.string(), "--json", "--weights", "int8"}, "verify");
  document_of({"eval", kModel.string(), "--data", (kSource / "assets/eval/scenes").string(), "--limit", "8",
               "--json"},
              "eval");
}

TEST(Json, Bench) {
  const Scratch scratch;
  const std::vector<std::string> small = {"--prompt-tokens", "80",  "--decode", "2",   "--repeat", "1",
                                          "--width",         "112", "--height", "112", "--json"};
  const auto bench = [&](std::vector<std::string> args, const std::string& name) {
    args.insert(args.begin(), {"bench", kModel.string()});
    args.insert(args.end(), small.begin(), small.end());
    return document_of(args, name);
  };
  const json one = bench({"--parts"}, "bench");
  write_file(scratch.path() / "earlier.json", one.dump());
  EXPECT_EQ(bench({"--compare", (scratch.path() / "earlier.json").string()}, "bench")["compared"].size(), 1U);
  EXPECT_EQ(bench({"--weights", "fp32,int8"}, "bench_sweep")["runs"].size(), 2U);
  const std::string trace = (scratch.path() / "trace.jsonl").string();
  ASSERT_EQ(triptych({"bench", "--make-trace", trace, "--requests", "4", "--picture-sides", "96,128",
                      "--prompt-range", "4,30", "--answer-range", "2,6"})
                .exit_code,
            0);
  const json served = document_of(
      {"bench", kModel.string(), "--serve-trace", trace, "--clients", "2", "--json"}, "bench_serve");
  EXPECT_EQ(served["requests"]["answered"], 4);
  EXPECT_EQ(served["padding"]["padded_rows"], 0);
  EXPECT_EQ(served["padding"]["padded_patches"], 0);
  document_of({"bench", "--limits", "--threads", "1", "--json"}, "bench_limits");
  const json drafts = document_of({"bench", kModel.string(), "--speculative", "ngram", "--prompt-tokens",
                                   "120", "--decode", "60", "--repeat", "1", "--json"},
                                  "bench_speculation");
  for (const json& with : drafts["traces"]) EXPECT_TRUE(with["same_answers"]) << with;
}

TEST(Json, CompletionAndHelp) {
  EXPECT_EQ(document_of({"completion", "bash", "--json"}, "completion")["script"],
            triptych({"completion", "bash"}).out);
  EXPECT_EQ(document_of({"help", "run", "--json"}, "help")["verbs"].size(), 1U);
  document_of({"help", "--json"}, "help");
}

TEST(Json, ErrorsAreDocumentsOnStderr) {
  const auto error_of = [](const std::vector<std::string>& args) {
    const RunResult result = triptych(args);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    const json out = json::parse(result.err, nullptr, false);
    EXPECT_EQ(document_problem(out), "") << result.err;
    return out.value("error", json::object());
  };
  EXPECT_EQ(error_of({"run", "/nowhere", "--prompt", "x", "--json"})["code"], "not_found");
  EXPECT_EQ(error_of({"inspect", "/nowhere", "--json"})["code"], "not_found");
  EXPECT_EQ(error_of({"run", kModel.string(), "--json", "--promt", "x"})["code"], "invalid_argument");
  EXPECT_EQ(error_of({"walk", "--json"})["code"], "invalid_argument");
  EXPECT_EQ(error_of({"run", kModel.string(), "--prompt", "x", "--ctx-size", "4", "--json"})["code"],
            "context_length_exceeded");
  const Scratch scratch;
  write_file(scratch.path() / "x.png", "no picture\nat all");
  const json picture = error_of(
      {"run", kModel.string(), "--prompt", "x", "--image", (scratch.path() / "x.png").string(), "--json"});
  EXPECT_EQ(picture["code"], "invalid_file");
  EXPECT_THAT(picture["message"].get<std::string>(), HasSubstr("x.png"));
}

}  // namespace
}  // namespace triptych::test
