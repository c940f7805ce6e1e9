// triptych bench --serve against triptych serve, with the model that ships.
#include "e2e/http_client.h"
#include "e2e/json_schema.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

ServerProcess& server() {
  static ServerProcess one({"--max-num-seqs", "4"});
  return one;
}
std::string url() { return "http://127.0.0.1:" + std::to_string(server().port()); }

json load(std::vector<std::string> args, int exit_code = 0, const std::string& to = url()) {
  args.insert(args.begin(), {"bench", "--serve", to, "--json"});
  const RunResult result = triptych(args);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(document_problem(out), "");
  return out;
}

TEST(BenchLoad, AClosedLoopOfAskers) {
  const Scratch scratch;
  const std::string html = (scratch.path() / "load.html").string();
  const double before = server().metric("triptych_generation_tokens_total");
  const json out = load({"--requests", "8", "--clients", "3", "--picture-sides", "96,128", "--prompt-range",
                         "4,20", "--answer-range", "3,9", "--text-share", "0.2", "--html", html});
  EXPECT_EQ(out["requests"]["answered"], 8);
  EXPECT_EQ(out["statuses"], json({{"200", 8}}));
  EXPECT_EQ(out["model"], kModel.string());  // the first of /v1/models
  EXPECT_EQ(out["connections"], 3);
  EXPECT_LE(out["most_in_flight"], 3);
  // The server and its client count the same.
  EXPECT_EQ(out["answer_tokens"].get<double>(), server().metric("triptych_generation_tokens_total") - before);
  EXPECT_GT(out["image_tokens"], 0);
  const json& times = out["latencies"];
  EXPECT_GT(times["first_token_ms"]["p50"], 0);
  EXPECT_GE(times["end_to_end_ms"]["p50"], times["first_token_ms"]["p50"]);
  EXPECT_TRUE(times.contains("prefill_ms"));
  EXPECT_FALSE(times.contains("refusal_ms"));
  EXPECT_THAT(read_file(html), AllOf(HasSubstr("8 answered, 0 failed"), HasSubstr("Requests at once")));
}

TEST(BenchLoad, ATraceAtItsTimes) {
  const Scratch scratch;
  std::filesystem::copy_file(kScenes / "scene1.png", scratch.path() / "star.png");
  const std::string trace = (scratch.path() / "t.jsonl").string();
  write_file(
      trace,
      "{\"arrival_ms\": 0, \"pictures\": [{\"file\": \"star.png\"}], \"prompt\": \"Describe the image.\", "
      "\"answer_tokens\": 4}\n{\"arrival_ms\": 20, \"prompt\": \"Hello\", \"answer_tokens\": 2}\n");
  const json out = load({"--serve-trace", trace, "--ask-model", "scenes-llava"});
  EXPECT_EQ(out["requests"]["answered"], 2);
  EXPECT_EQ(out["answer_tokens"], 6);
  EXPECT_EQ(out["load"], "arrivals of the trace");
  EXPECT_EQ(load({"--serve-trace", trace, "--rate", "100", "--seed", "3"})["answer_tokens"], 6);
}

// What is refused is counted by its status, and told in the exit code.
TEST(BenchLoad, CountsRefusals) {
  const std::vector<std::string> small = {"--requests",     "3",  "--picture-sides", "96",
                                          "--answer-range", "1,2"};
  std::vector<std::string> args = small;
  args.insert(args.end(), {"--ask-model", "gpt-4"});
  json out = load(args, 1);
  EXPECT_EQ(out["statuses"], json({{"404", 3}}));
  EXPECT_THAT(out["requests"]["errors"][0]["message"].get<std::string>(), HasSubstr("gpt-4"));
  EXPECT_EQ(out["latencies"]["refusal_ms"].size(), 5U);
  args = small;
  args.insert(args.end(), {"--request-fields", R"({"temperature": "hot"})"});
  out = load(args, 1);
  EXPECT_EQ(out["statuses"], json({{"400", 3}}));
  // Port 1 of this machine is nobody's.
  args = small;
  args.insert(args.end(), {"--ask-model", "x"});
  EXPECT_EQ(load(args, 1, "http://127.0.0.1:1")["statuses"], json({{"none", 3}}));
}

TEST(BenchLoad, SaysWhatDoesNotGoTogether) {
  const auto refused = [](std::vector<std::string> args, const std::string& part) {
    args.insert(args.begin(), "bench");
    expect_bad_input(triptych(args), part);
  };
  refused({"--serve", "127.0.0.1:8000"}, "--serve: expected http://");
  refused({"--serve", url(), kModel.string()}, "MODEL does not go with --serve");
  refused({"--serve", url(), "--max-num-seqs", "3"}, "--max-num-seqs does not go with --serve");
  refused({"--serve", url(), "--rate", "1", "--clients", "2"}, "exclude each other");
  refused({"--serve", url(), "--request-fields", "[1]"}, "an object");
  refused({kModel.string(), "--ask-model", "x"}, "--ask-model goes with --serve");
  refused({"--serve", "http://127.0.0.1:1"}, "127.0.0.1:1/v1/models");
}

}  // namespace
}  // namespace triptych::test
