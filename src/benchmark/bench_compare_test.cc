#include "benchmark/bench_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych {
namespace {

using testing::HasSubstr;

BenchRun run_of(const std::string& weights, double prefill_ms, double decode_ms) {
  BenchRun run;
  run.model = "m";
  run.weights = weights;
  run.report.n_prompt_tokens = 640;
  run.report.peak_memory_bytes = 1000;
  run.report.question_first_token_ms = 50;
  run.report.stages = {{.name = "prefill",
                        .ms = prefill_ms,
                        .n_items = 640,
                        .unit = "tokens",
                        .cost = {.flops = 1e9, .int8_ops = 0, .bytes = 1e6}},
                       {.name = "decode", .ms = decode_ms, .n_items = 1, .unit = "tokens", .cost = {}}};
  return run;
}

const MachineLimits kLimits{.n_threads = 2, .fp32_flops_per_s = 1e11, .read_bytes_per_s = 1e10};

TEST(BenchCompare, ReadsWhatTheReportWrites) {
  for (const auto& runs : {std::vector{run_of("int8", 200, 10)},
                           std::vector{run_of("bf16", 400, 20), run_of("int8", 200, 10)}}) {
    const std::string text = to_json_text(bench_json(runs, kLimits));
    const EarlierBench earlier = parse_earlier_bench(text, "e.json");
    ASSERT_EQ(earlier.runs.size(), runs.size());
    EXPECT_EQ(earlier.n_threads, 2);
    const EarlierRun& last = earlier.runs.back();
    EXPECT_EQ(last.weights, "int8");
    EXPECT_EQ(last.prompt_tokens, 640);
    EXPECT_EQ(last.peak_memory_bytes, 1000);
    EXPECT_EQ(last.question_first_token_ms, 50);
    EXPECT_THAT(last.stages,
                testing::ElementsAre(testing::Pair("prefill", 200.0), testing::Pair("decode", 10.0)));
  }
}

TEST(BenchCompare, RatiosAreEarlierOverNow) {
  const EarlierBench earlier = parse_earlier_bench(
      to_json_text(bench_json({run_of("bf16", 400, 20), run_of("int8", 200, 10)}, kLimits)), "e.json");
  const std::vector<BenchRun> now{run_of("int8", 100, 20), run_of("fp32", 1, 1)};
  const JsonOut out = compare_json(earlier, now);
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0]["earlier_weights"], "int8");
  EXPECT_DOUBLE_EQ(out[0]["earlier_over_now"]["prefill"], 2.0);
  EXPECT_DOUBLE_EQ(out[0]["earlier_over_now"]["decode"], 0.5);
  EXPECT_DOUBLE_EQ(out[0]["earlier_over_now"]["peak memory"], 1.0);
  EXPECT_DOUBLE_EQ(out[0]["earlier_over_now"]["question, first token"], 1.0);
  const std::string text = compare_text(earlier, now, kLimits);
  EXPECT_THAT(text, HasSubstr("2.00x"));
  EXPECT_THAT(text, HasSubstr("0.50x"));
  EXPECT_THAT(text, HasSubstr("no run with weights fp32"));
}

TEST(BenchCompare, TheOnlyEarlierRunServesAnyFormatAndDifferencesAreSaid) {
  EarlierBench earlier =
      parse_earlier_bench(to_json_text(bench_json({run_of("bf16", 400, 20)}, kLimits)), "e.json");
  earlier.processor = "another \x1b[2J processor";
  const std::vector<BenchRun> now{run_of("int8", 100, 20)};
  ASSERT_NE(counterpart(earlier, now[0]), nullptr);
  MachineLimits limits = kLimits;
  limits.n_threads = 1;
  const std::string text = compare_text(earlier, now, limits);
  EXPECT_THAT(text, HasSubstr("the format of the weights was bf16 and is int8"));
  EXPECT_THAT(text, HasSubstr("the number of threads was 2 and is 1"));
  EXPECT_THAT(text, HasSubstr("the processor was another"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("4.00x"));
}

TEST(BenchCompare, FilesBeforeWeightsWereNamedStillRead) {
  const EarlierBench earlier = parse_earlier_bench(
      R"({"model": "m", "stages": [{"name": "decode", "ms": 3}], "limits": {"threads": 2}})", "e.json");
  EXPECT_EQ(earlier.runs.at(0).weights, "");
  EXPECT_NE(counterpart(earlier, run_of("int8", 1, 1)), nullptr);
}

TEST(BenchCompare, WrongFilesAreNamed) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      parse_earlier_bench(text, "e.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFile) << error.what();
      return error.what();
    }
    return "nothing thrown";
  };
  EXPECT_THAT(message("{"), HasSubstr("e.json"));
  EXPECT_THAT(message("[]"), HasSubstr("e.json"));
  EXPECT_THAT(message(R"({"model": "m"})"), HasSubstr("stages"));
  EXPECT_THAT(message(R"({"model": "m", "stages": {}})"), HasSubstr("array"));
  EXPECT_THAT(message(R"({"runs": []})"), HasSubstr("1 to 256 runs"));
  for (const char* ms : {"0", "-1", "1e10", "\"3\"", "null"})
    EXPECT_THAT(message(fmt::format(R"({{"model": "m", "stages": [{{"name": "decode", "ms": {}}}]}})", ms)),
                HasSubstr("ms"))
        << ms;
  EXPECT_THAT(message(R"({"model": "m", "stages": [{"name": "a", "ms": 1}, {"name": "a", "ms": 1}]})"),
              HasSubstr("no stage before it"));
  EXPECT_THAT(message(R"({"model": "m", "stages": [], "peak_memory_bytes": -5})"),
              HasSubstr("peak_memory_bytes"));
  std::string many = R"({"model": "m", "stages": [)";
  for (int i = 0; i < 65; ++i) many += fmt::format(R"({}{{"name": "s{}", "ms": 1}})", i == 0 ? "" : ",", i);
  EXPECT_THAT(message(many + "]}"), HasSubstr("at most 64 stages"));
}

}  // namespace
}  // namespace triptych
