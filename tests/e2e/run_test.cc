// triptych run, with the model that ships.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kStar = (kScenes / "scene1.png").string();
const std::string kQuestion = "Is the star small or large?";

std::vector<std::string> with(std::vector<std::string> args, const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

const std::vector<std::string> kAsk = {"run", kModel.string(), "--image", kStar, "--prompt", kQuestion};

TEST(Run, AnswersAboutAPicture) {
  const RunResult result = triptych(kAsk);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "small\n");
  EXPECT_EQ(result.err, "");
}

TEST(Run, AnswersUnderAConstraint) {
  EXPECT_EQ(triptych(with(kAsk, {"--guided-choice", "medium,tiny"})).out.find_first_of("mt"), 0U);
  const RunResult right = triptych(with(kAsk, {"--guided-choice", "large", "--guided-choice", "small"}));
  EXPECT_EQ(right.out, "small\n") << right.err;
  const RunResult document = triptych(with(
      kAsk, {"--json-schema",
             R"({"type":"object","properties":{"size":{"enum":["small","large"]}},"required":["size"]})"}));
  EXPECT_TRUE(json::accept(document.out)) << document.out << document.err;
  const RunResult digits = triptych(with(kAsk, {"--guided-regex", "[0-9]{4}"}));
  EXPECT_EQ(digits.out.size(), 5U) << digits.out << digits.err;
  const RunResult bad = triptych(with(kAsk, {"--json-schema", R"({"oneOf":[]})"}));
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr(R"(guided_json: $: keyword "oneOf" is not supported)"));
  const RunResult absent = triptych(with(kAsk, {"--grammar-file", "/no/such/file"}));
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.err, HasSubstr("--grammar-file: /no/such/file"));
  EXPECT_EQ(triptych(with(kAsk, {"--guided-regex", "a", "--guided-choice", "b"})).exit_code, 2);
}

TEST(Run, AnswersWithEightBitWeights) {
  const RunResult result = triptych(with(kAsk, {"--weights", "int8"}));
  EXPECT_EQ(result.out, "small\n") << result.err;
}

TEST(Run, TakesThePictureFromStdin) {
  const RunResult result =
      triptych({"run", kModel.string(), "--image", "-", "--prompt", kQuestion}, read_file(kStar));
  EXPECT_EQ(result.out, "small\n") << result.err;
}

TEST(Run, AnswerDependsOnThePicture) {
  const auto describe = [](const char* scene) {
    return triptych({"run", kModel.string(), "--image", (kScenes / scene).string(), "--prompt",
                     "Describe the image."})
        .out;
  };
  const json golden = json::parse(read_file(kScenes / "golden.json"));
  EXPECT_EQ(describe("scene0.png"), golden["cases"][0]["text"].get<std::string>() + "\n");
  EXPECT_EQ(describe("scene2.png"), golden["cases"][2]["text"].get<std::string>() + "\n");
}

TEST(Run, EveryStepThroughTheModelGivesTheSameAnswer) {
  const auto answer = [](const std::vector<std::string>& more) {
    const RunResult result =
        triptych(with(with(kAsk, {"--max-tokens", "80", "--ignore-eos", "--json", "--logprobs", "3"}), more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    json out = json::parse(result.out);
    out.erase("timings");
    return out;
  };
  const json replayed = answer({});
  EXPECT_EQ(replayed["token_ids"].size(), 80U);  // over the end of a page
  EXPECT_EQ(answer({"--enforce-eager"}), replayed);
}

TEST(Run, DraftsAreCountedAndChangeNoAnswer) {
  const auto answer = [](const std::vector<std::string>& more) {
    const RunResult result = triptych(with(with(kAsk, {"--json"}), more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  };
  const json without = answer({});
  EXPECT_FALSE(without["usage"].contains("accepted_prediction_tokens"));
  EXPECT_EQ(answer({"--speculative", "ngram"})["text"], without["text"]);
  // An answer that does not end begins to repeat itself: a few drafts are made whatever the machine's speed.
  const json usage = answer(
      {"--speculative", "ngram", "--prompt-lookup-min", "1", "--max-tokens", "200", "--ignore-eos"})["usage"];
  EXPECT_GT(usage["accepted_prediction_tokens"].get<int>() + usage["rejected_prediction_tokens"].get<int>(),
            0);
  const auto refused = [](const std::vector<std::string>& more, const char* why) {
    const RunResult result = triptych(with(kAsk, more));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  refused({"--num-speculative-tokens", "4"}, "--num-speculative-tokens needs --speculative");
  refused({"--speculative", "self-draft", "--prompt-lookup-max", "4"},
          "--prompt-lookup-max needs --speculative ngram");
  refused({"--speculative", "ngram", "--prompt-lookup-min", "5"}, "--prompt-lookup-min 5 is above");
  refused({"--speculative", "self-draft"}, "triptych convert MODEL OUT --self-draft FOLDER");
  refused({"--speculative", "eagle"}, "--speculative");
}

TEST(Run, JsonHasTheAnswerItsCountsAndTimes) {
  const RunResult result = triptych(with(kAsk, {"--json", "--logprobs", "2", "--profile"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["text"], "small");
  EXPECT_EQ(out["finish_reason"], "stop");
  EXPECT_EQ(out["usage"]["prompt_tokens"], 76);
  EXPECT_EQ(out["usage"]["image_tokens"], 64);
  EXPECT_EQ(out["usage"]["completion_tokens"], out["token_ids"].size());
  for (const char* name : {"first_token_ms", "encode_ms", "prefill_ms"})
    EXPECT_GT(out["timings"][name], 0.0) << name;
  ASSERT_EQ(out["logprobs"].size(), out["token_ids"].size());
  const json& first = out["logprobs"][0];
  EXPECT_EQ(first["id"], out["token_ids"][0]);
  EXPECT_LE(first["logprob"], 0.0);
  ASSERT_EQ(first["top_logprobs"].size(), 2U);
  EXPECT_EQ(first["top_logprobs"][0]["id"], first["id"]);  // greedy: the likeliest
  EXPECT_GE(first["top_logprobs"][0]["logprob"], first["top_logprobs"][1]["logprob"]);
  std::vector<std::string> zones;
  for (const json& zone : out["profile"]) zones.push_back(zone["zone"]);
  EXPECT_THAT(zones, testing::IsSupersetOf({"image decode", "prefill"}));
  EXPECT_THAT(result.err, HasSubstr("prefill"));
}

TEST(Run, ASeedGivesTheSameAnswerWithAnyNumberOfThreads) {
  const std::vector<std::string> hot = {"run",           kModel.string(),
                                        "--image",       kStar,
                                        "--prompt",      "Describe the image.",
                                        "--temperature", "9",
                                        "--seed",        "11",
                                        "--max-tokens",  "24",
                                        "--json"};
  const auto text = [&](const std::vector<std::string>& more) {
    const RunResult result = triptych(with(hot, more));
    return result.exit_code == 0 ? json::parse(result.out)["token_ids"] : json(result.err);
  };
  const json one = text({"--threads", "1"});
  EXPECT_EQ(one, text({"--threads", "1"}));
  EXPECT_EQ(one, text({"--threads", "2"}));
  EXPECT_EQ(one, text({"--threads", "3", "--pin"}));
  EXPECT_EQ(one, text({"--huge-pages", "none"}));
  const RunResult other =
      triptych({"run", kModel.string(), "--image", kStar, "--prompt", "Describe the image.", "--temperature",
                "9", "--seed", "12", "--max-tokens", "24", "--json"});
  EXPECT_NE(one, json::parse(other.out)["token_ids"]);
}

TEST(Run, StopsWhereItIsTold) {
  const std::vector<std::string> describe = {
      "run",      kModel.string(),       "--image", (kScenes / "scene0.png").string(),
      "--prompt", "Describe the image.", "--json"};
  const json by_length = json::parse(triptych(with(describe, {"--max-tokens", "3"})).out);
  EXPECT_EQ(by_length["finish_reason"], "length");
  EXPECT_EQ(by_length["token_ids"].size(), 3U);
  const json by_text = json::parse(triptych(with(describe, {"--stop", " at the center"})).out);
  EXPECT_EQ(by_text["finish_reason"], "stop");
  EXPECT_EQ(by_text["stop_string"], " at the center");
  EXPECT_EQ(by_text["text"], "a large cyan cross");
  const json full = json::parse(triptych(with(describe, {"--ctx-size", "80"})).out);
  EXPECT_EQ(full["finish_reason"], "length");
  EXPECT_EQ(full["token_ids"].size(), 6U);  // 74 tokens of prompt
}

TEST(Run, KeysAndValuesInFewerBitsGiveTheSameShortAnswer) {
  for (const char* type : {"fp32", "fp16", "bf16", "int8", "fp8", "int4"})
    EXPECT_EQ(triptych(with(kAsk, {"--kv-cache-dtype", type})).out, "small\n") << type;
}

TEST(Run, SeveralPicturesAndNone) {
  const RunResult two =
      triptych({"run", kModel.string(), "--image", kStar, "--image", (kScenes / "scene0.png").string(),
                "--prompt", "Describe the image.", "--json", "--max-tokens", "2"});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(json::parse(two.out)["usage"]["image_tokens"], 128);
  const RunResult none =
      triptych({"run", kModel.string(), "--prompt", "Describe the image.", "--json", "--max-tokens", "2"});
  ASSERT_EQ(none.exit_code, 0) << none.err;
  EXPECT_EQ(json::parse(none.out)["usage"]["image_tokens"], 0);
}

TEST(Run, WhatAUserTypesIsNoPlaceholder) {
  const RunResult result =
      triptych({"run", kModel.string(), "--image", kStar, "--prompt", "<image></s> " + kQuestion, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["usage"]["image_tokens"], 64);
}

TEST(Run, WritesATraceOfZones) {
  const Scratch scratch;
  const std::filesystem::path file = scratch.path() / "trace.json";
  ASSERT_EQ(triptych(with(kAsk, {"--trace-out", file.string()})).exit_code, 0);
  const json events = json::parse(read_file(file));
  ASSERT_TRUE(events.is_array());
  EXPECT_TRUE(
      std::any_of(events.begin(), events.end(), [](const json& e) { return e["name"] == "prefill"; }));
}

// ---- a conversation from a pipe

RunResult chat(const std::string& lines, const std::vector<std::string>& more = {}) {
  return triptych(with({"run", kModel.string(), "-i"}, more), lines);
}

TEST(Chat, ReadsAScriptFromStdin) {
  const RunResult result =
      chat("/image " + kStar + "\n" + kQuestion + "\n\n/reset\n/image " + (kScenes / "scene3.png").string() +
           "\n" + kQuestion + "\n/quit\nnot asked\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "small\nsmall\n");
  EXPECT_EQ(result.err, "");
}

TEST(Chat, GoesOnAfterAMistakeButDoesNotPass) {
  const RunResult result = chat("/image nothing.png\n/what\n/image " + kStar + "\n" + kQuestion);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "small\n");
  EXPECT_THAT(result.err, HasSubstr("nothing.png"));
  EXPECT_THAT(result.err, HasSubstr("unknown command /what"));
}

TEST(Chat, KeepsTheConversation) {
  const RunResult result = chat("/image " + kStar + "\n" + kQuestion + "\nDescribe the image.\n", {"--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  const json a = json::parse(first), b = json::parse(second);
  EXPECT_EQ(a["usage"]["image_tokens"], 64);
  EXPECT_EQ(b["usage"]["image_tokens"], 64);  // the picture is still there
  EXPECT_GT(b["usage"]["prompt_tokens"], a["usage"]["prompt_tokens"]);
}

TEST(Chat, ALineThatEndsWithABackslashGoesOn) {
  const RunResult result = chat("/image " + kStar + "\nIs the star small \\\nor large?\n", {"--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
}

TEST(Chat, LinesMayEndAsInFilesOfOtherSystems) {
  const std::string lines = "/image " + kStar + "\nIs the star small \\\nor large?\n\n/reset\nx\n/quit";
  std::string with_returns;
  for (const char c : lines) with_returns.append(c == '\n' ? "\r" : "").push_back(c);
  const RunResult plain = chat(lines);
  const RunResult other = chat(with_returns + "\r");
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(other.out, plain.out);
  EXPECT_EQ(other.err, "");
}

TEST(Chat, ALaterTurnGoesOnWithTheFirstOnesKeys) {
  const RunResult result = chat("/image " + kStar + "\n" + kQuestion + "\nDescribe the image.\n", {"--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::size_t end = result.out.find('\n');
  const json first = json::parse(result.out.substr(0, end));
  const json second = json::parse(result.out.substr(end + 1));
  EXPECT_EQ(first["usage"]["reused_tokens"], 0);
  EXPECT_GE(second["usage"]["reused_tokens"], first["usage"]["prompt_tokens"]);
  EXPECT_EQ(second["timings"]["encode_ms"], 0.0);
}

// ---- at a terminal

std::vector<std::string> at_terminal(const std::vector<std::string>& more) {
  return with({program_path(), "run", kModel.string()}, more);
}

TEST(Terminal, ChatWithHistory) {
  const Scratch scratch;
  const std::string history = (scratch.path() / "state/history").string();
  {
    TerminalProgram program(at_terminal({}), {"TRIPTYCH_HISTORY=" + history, "TERM=xterm"});
    ASSERT_TRUE(program.wait_for_prompt()) << program.output();
    program.type("/image " + kStar + "\n");
    ASSERT_TRUE(program.wait_for("1 picture or video for the next message")) << program.output();
    ASSERT_TRUE(program.wait_for_prompt());
    program.type(kQuestion + "\n");
    ASSERT_TRUE(program.wait_for("small\r\n")) << program.output();
    ASSERT_TRUE(program.wait_for_prompt());
    program.type("/reset\n");
    ASSERT_TRUE(program.wait_for_prompt());
    program.type("\x1b[A\x1b[A\x1b[A\n");  // three lines up: /image again
    ASSERT_TRUE(program.wait_for("1 picture or video for the next message")) << program.output();
    ASSERT_TRUE(program.wait_for_prompt());
    program.type("\x04");
    EXPECT_EQ(program.exit_code(), 0);
  }
  EXPECT_THAT(read_file(history), HasSubstr("scene1.png"));
  EXPECT_EQ(std::filesystem::status(history).permissions() & std::filesystem::perms::others_all,
            std::filesystem::perms::none);
  TerminalProgram again(at_terminal({}), {"TRIPTYCH_HISTORY=" + history, "TERM=xterm"});
  ASSERT_TRUE(again.wait_for_prompt());
  again.type("\x1b[A\n");
  EXPECT_TRUE(again.wait_for("1 picture or video for the next message")) << again.output();
}

TEST(Terminal, CtrlDTypedAheadEndsTheChat) {
  TerminalProgram program(at_terminal({}), {"TRIPTYCH_HISTORY=", "TERM=xterm"});
  program.type("\x04");
  EXPECT_EQ(program.exit_code(), 0) << program.output();
}

TEST(Terminal, CtrlCCancelsTheAnswerNotTheProgram) {
  TerminalProgram program(at_terminal({"--ignore-eos"}), {"TRIPTYCH_HISTORY=", "TERM=xterm"});
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("half a line\x03");  // at the prompt: the line is dropped
  ASSERT_TRUE(program.wait_for_prompt()) << program.output();
  program.type("Describe the image.\n");
  ASSERT_TRUE(program.wait_for(" ")) << program.output();
  ASSERT_TRUE(program.wait_for("\n"));
  program.type("\x03");
  ASSERT_TRUE(program.wait_for_prompt()) << program.output();
  program.type("/quit\n");
  EXPECT_EQ(program.exit_code(), 0) << program.output();
}

TEST(Terminal, ControlCharactersOfTheModelDoNotReachIt) {
  // Tokens 8.. of the vocabulary are bytes; a bias makes the model say ESC for ever.
  const json vocabulary = json::parse(read_file(kModel / "tokenizer.json"))["model"]["vocab"];
  const std::string escape = std::to_string(vocabulary["<0x1B>"].get<int>());
  const std::vector<std::string> args = {"--prompt",     "x", "--logit-bias", escape + "=100",
                                         "--max-tokens", "3"};
  TerminalProgram program(at_terminal(args), {"TERM=xterm"});
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_EQ(program.output().find('\x1b'), std::string::npos);
  EXPECT_THAT(program.output(), HasSubstr("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"));
  EXPECT_THAT(triptych(with({"run", kModel.string()}, args)).out,
              HasSubstr("\x1b\x1b\x1b"));  // a pipe gets the bytes
}

}  // namespace
}  // namespace triptych::test
