// The command line: which values belong to which flag, help, suggestions, where text and pictures come from.
#include <sys/stat.h>

#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string kStar = (kScenes / "scene1.png").string();
const std::string kQuestion = "Is the star small or large?";

TEST(Flags, ARepeatableFlagTakesOneValueEachTime) {
  const RunResult image = triptych({"run", "--image", kStar, kModel.string(), "--prompt", kQuestion});
  EXPECT_EQ(image.out, "small\n") << image.err;
  for (const std::vector<std::string>& flag :
       {std::vector<std::string>{"--stop", "xyz"}, {"--logit-bias", "5=0"}, {"--stop-token-ids", "9,10"}}) {
    std::vector<std::string> args = {"run", "--image", kStar, "--prompt", kQuestion};
    args.insert(args.end(), flag.begin(), flag.end());
    args.insert(args.end(), flag.begin(), flag.end());
    args.push_back(kModel.string());
    const RunResult result = triptych(args);
    EXPECT_EQ(result.out, "small\n") << flag.front() << ": " << result.err;
  }
  expect_bad_input(triptych({"run", kModel.string(), "--image", kStar, kStar, "--prompt", "x"}),
                   "scene1.png");
}

TEST(Flags, OfTwoValuesTheLastCounts) {
  const RunResult result = triptych({"run", kModel.string(), "--prompt", "x", "--max-tokens", "9",
                                     "--ignore-eos", "--ignore-eos", "--max-tokens", "3", "--json", "--json",
                                     "--enforce-eager", "--enforce-eager", "--prompt", "y"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["token_ids"].size(), 3U);
}

TEST(Flags, WhatWasMeantIsNamed) {
  expect_bad_input(triptych({"run", kModel.string(), "--promt", "x"}),
                   "no flag \"--promt\"; did you mean --prompt?");
  expect_bad_input(triptych({"run", "--promt", "x", kModel.string()}), "did you mean --prompt?");
  expect_bad_input(triptych({"run", kModel.string(), "--temprature=1"}), "did you mean --temperature?");
  expect_bad_input(triptych({"run", kModel.string(), "--zzz"}),
                   "run has no flag \"--zzz\" (see triptych run --help)");
  expect_bad_input(triptych({"rnu"}), "did you mean run?");
  expect_bad_input(triptych({"inspct", "x"}), "did you mean inspect?");
  expect_bad_input(triptych({"walk"}), "there are run, serve, inspect, convert");
  expect_bad_input(triptych({"help", "evl"}), "did you mean eval?");
  expect_bad_input(triptych({"--versoin"}), "did you mean --version?");
}

TEST(Flags, ValuesAreCheckedBeforeTheModelIsLoaded) {
  const std::string model = "/nowhere";
  const auto ask = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", model, "--prompt", "x"});
    return triptych(more);
  };
  expect_bad_input(ask({"--temperature", "-1"}), "temperature");
  expect_bad_input(ask({"--top-p", "2"}), "top_p");
  expect_bad_input(ask({"--logit-bias", "x"}), "--logit-bias");
  expect_bad_input(ask({"--stop", "caf\xe9"}), "stop:");
  expect_bad_input(ask({"--weights", "int5"}), "--weights");
  expect_bad_input(ask({"--min-pixels", "2000", "--max-pixels", "1000"}), "--min-pixels 2000 is more than");
  expect_bad_input(ask({"--image", "nothing.png"}), "nothing.png");
  expect_bad_input(triptych({"run", model, "--prompt", "caf\xe9"}), "--prompt: expected UTF-8");
  expect_bad_input(triptych({"run", model, "--prompt-file", "/nothing.txt"}), "/nothing.txt");
}

TEST(Help, IsWrappedGroupedAndSaysDefaults) {
  for (const char* verb :
       {"run", "inspect", "convert", "trace", "verify", "eval", "bench", "completion", "help"})
    for (const int width : {100, 120}) {
      const RunResult help = triptych({verb, "--help"}, "", {"COLUMNS=" + std::to_string(width)});
      EXPECT_EQ(help.exit_code, 0);
      EXPECT_EQ(help.out, triptych({"help", verb}, "", {"COLUMNS=" + std::to_string(width)}).out);
      std::istringstream lines(help.out.substr(0, help.out.find("Examples:")));
      for (std::string line; std::getline(lines, line);)
        EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << verb << ": " << line;
    }
  const std::string help = triptych({"help", "run"}).out;
  EXPECT_THAT(help, testing::StartsWith("Usage: triptych run MODEL [OPTION ...]\n"));
  std::size_t at = 0;
  for (const char* part : {"Most used:\n  --image FILE", "-p, --prompt TEXT", "--max-tokens",
                           "--temperature X", "--weights", "Pictures and videos:", "Sampling:", "Context:",
                           "Weights and precision:", "Machine:", "Output:", "Examples:"}) {
    const std::size_t found = help.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << "\n" << help;
    at = found;
  }
  EXPECT_THAT(help, HasSubstr("[default: auto]"));
  EXPECT_THAT(help, HasSubstr("64000000]"));
  EXPECT_THAT(triptych({"help", "bench"}).out, HasSubstr("[default: 640]"));
  const std::string program = triptych({"--help"}).out;
  EXPECT_EQ(program, triptych({"help"}).out);
  EXPECT_THAT(program, HasSubstr("  verify"));
}

TEST(Help, ManPageHasTheArgumentsOfEveryVerb) {
  const std::string page = triptych({"--help-man"}).out;
  EXPECT_THAT(page, HasSubstr("\\fBtriptych convert\\fR \\fIMODEL\\fR \\fIOUT\\fR [\\fIoption\\fR ...]"));
  EXPECT_THAT(page, HasSubstr("\\fBtriptych bench\\fR [\\fIMODEL\\fR] [\\fIoption\\fR ...]"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-data\\fR \\fIDIR\\fR [\\fIoption\\fR ...]"));
}

TEST(Prompt, ComesFromAFileOrStdin) {
  const Scratch scratch;
  const std::string file = (scratch.path() / "q.txt").string();
  write_file(file, kQuestion + "\n");
  const std::vector<std::string> ask = {"run", kModel.string(), "--image", kStar};
  const auto with = [&](std::vector<std::string> more, const std::string& input = "") {
    more.insert(more.begin(), ask.begin(), ask.end());
    return triptych(more, input);
  };
  EXPECT_EQ(with({"--prompt-file", file}).out, "small\n");
  EXPECT_EQ(with({"--prompt", "-"}, kQuestion).out, "small\n");
  EXPECT_EQ(with({"--prompt-file", "/dev/stdin"}, kQuestion + "\r\n").out, "small\n");
  expect_bad_input(with({"--prompt-file", file, "--prompt", "x"}), "--prompt");
  expect_bad_input(with({"--prompt-file", scratch.path().string()}), "folder");
  expect_bad_input(triptych({"run", kModel.string(), "--image", "-", "--prompt", "-"}), "both");
  write_file(file, "caf\xe9");
  expect_bad_input(with({"--prompt-file", file}), "UTF-8");
  const std::string traced = (scratch.path() / "t.safetensors").string();
  EXPECT_EQ(triptych({"trace", kModel.string(), "--prompt", "-", "--out", traced}, "Hi").exit_code, 0);
}

TEST(Picture, ComesFromAFifoOrADevice) {
  const RunResult device =
      triptych({"run", kModel.string(), "--image", "/dev/stdin", "--prompt", kQuestion}, read_file(kStar));
  EXPECT_EQ(device.out, "small\n") << device.err;
  const std::string command = "'" + program_path() + "' run '" + kModel.string() + "' --image <(cat '" +
                              kStar + "') --prompt '" + kQuestion + "'";
  const RunResult substituted = run_program({"bash", "-c", command});
  EXPECT_EQ(substituted.out, "small\n") << substituted.err;
  const Scratch scratch;
  const std::string fifo = (scratch.path() / "fifo").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const RunResult piped =
      run_program({"bash", "-c",
                   "cat '" + kStar + "' > '" + fifo + "' & '" + program_path() + "' run '" + kModel.string() +
                       "' --image '" + fifo + "' --prompt '" + kQuestion + "'; wait"});
  EXPECT_EQ(piped.out, "small\n") << piped.err;
  expect_bad_input(triptych({"run", kModel.string(), "--image", "/dev/null", "--prompt", "x"}),
                   "no bytes came");
  expect_bad_input(triptych({"run", kModel.string(), "--image", "/dev/zero", "--prompt", "x"}), "limit");
}

TEST(Picture, MostPixels) {
  const std::vector<std::string> ask = {"run",      kModel.string(), "--image",           kStar,
                                        "--prompt", kQuestion,       "--max-image-pixels"};
  std::vector<std::string> few = ask, enough = ask;
  few.push_back("1000");
  enough.push_back("100000000");
  expect_bad_input(triptych(few), "at most 1000 pixels are allowed");
  EXPECT_EQ(triptych(enough).out, "small\n");
}

// What people give that is no checkpoint, and no picture.
TEST(Kinds, AreNamed) {
  const Scratch scratch;
  const auto ask = [](const std::string& model, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"run", model, "--prompt", "x"});
    return triptych(more);
  };
  expect_bad_input(ask("llava-hf/llava-1.5-7b-hf"),
                   "`hf download llava-hf/llava-1.5-7b-hf --local-dir llava-1.5-7b-hf`");
  const auto gguf = scratch.path() / "x.gguf";
  write_file(gguf, "GGUF\3");
  expect_bad_input(ask(gguf.string()), "GGUF");
  const auto copy = scratch.copy_of(kModel, "m");
  json config = json::parse(read_file(copy / "config.json"));
  config["architectures"] = {"LlamaForCausalLM"};
  config.erase("vision_config");
  config.erase("image_token_index");
  write_file(copy / "config.json", config.dump());
  expect_bad_input(ask(copy.string()), "LlamaForCausalLM is a language model for text alone");
  const std::pair<std::string, const char*> pictures[] = {
      {std::string("\0\0\0\x18", 4) + "ftypmp42", "ffmpeg -i"},
      {std::string("\0\0\0\x18", 4) + "ftypheic", "heif-convert"},
      {std::string("\0\0\0\x18", 4) + "ftypavif", "avifdec"},
      {"\x1a\x45\xdf\xa3 webm", "ffmpeg -i"},
      {"%PDF-1.7", "pdftoppm"},
      {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"}};
  for (const auto& [bytes, way] : pictures) {
    write_file(scratch.path() / "x", bytes + std::string(64, ' '));
    expect_bad_input(ask(kModel.string(), {"--image", (scratch.path() / "x").string()}), way);
  }
}

}  // namespace
}  // namespace triptych::test
