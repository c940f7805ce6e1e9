// Bad input: one line on stderr, exit code 2, nothing on stdout.
#include <sys/stat.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;

RunResult ask(const std::filesystem::path& model, const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {"run", model.string(), "--prompt", "Hi"};
  args.insert(args.end(), more.begin(), more.end());
  return triptych(args);
}

class BrokenModel : public testing::Test {
 protected:
  void SetUp() override {
    model_ = scratch_.path() / "model";
    std::filesystem::create_directories(model_);
    for (const auto& entry : std::filesystem::directory_iterator(kModel))
      if (entry.is_regular_file()) std::filesystem::copy(entry.path(), model_ / entry.path().filename());
  }
  json config() const { return json::parse(read_file(model_ / "config.json")); }
  void set_config(const json& config) const { write_file(model_ / "config.json", config.dump()); }

  Scratch scratch_;
  std::filesystem::path model_;
};

TEST_F(BrokenModel, IsSoundToBeginWith) { EXPECT_EQ(ask(model_).exit_code, 0); }

TEST_F(BrokenModel, MissingOrEmptyDirectory) {
  expect_bad_input(ask(scratch_.path() / "nothing"), "nothing");
  std::filesystem::create_directories(scratch_.path() / "empty");
  expect_bad_input(ask(scratch_.path() / "empty"), "config.json");
  expect_bad_input(ask(model_ / "config.json"), "config.json");
}

TEST_F(BrokenModel, BrokenConfig) {
  write_file(model_ / "config.json", "{\"architectures\": [");
  expect_bad_input(ask(model_), "config.json");
  write_file(model_ / "config.json", "[]");
  expect_bad_input(ask(model_), "config.json");
  write_file(model_ / "config.json", std::string(1000, '['));
  expect_bad_input(ask(model_), "nested deeper");
}

TEST_F(BrokenModel, WrongField) {
  json c = config();
  c["text_config"]["num_hidden_layers"] = "four";
  set_config(c);
  expect_bad_input(ask(model_), "config.json: text_config.num_hidden_layers");
  c["text_config"]["num_hidden_layers"] = 1000000000;
  set_config(c);
  expect_bad_input(ask(model_), "num_hidden_layers");
  c["text_config"]["num_hidden_layers"] = 4;
  c["text_config"]["hidden_size"] = 256;
  set_config(c);
  expect_bad_input(ask(model_), "[128, 128]");
}

TEST_F(BrokenModel, UnknownArchitectureNamesTheNearest) {
  json c = config();
  c["architectures"] = {"LlavaForConditionalGenerations"};
  set_config(c);
  expect_bad_input(ask(model_), "nearest is LlavaForConditionalGeneration");
}

TEST_F(BrokenModel, TruncatedOrForeignWeights) {
  const auto weights = model_ / "model.safetensors";
  const auto size = std::filesystem::file_size(weights);
  std::filesystem::resize_file(weights, size - 1000);
  expect_bad_input(ask(model_), "model.safetensors");
  std::filesystem::resize_file(weights, 4);
  expect_bad_input(ask(model_), "model.safetensors");
  std::filesystem::resize_file(weights, 0);
  expect_bad_input(ask(model_), "model.safetensors");
  write_file(weights, std::string(64, '\xff'));
  expect_bad_input(ask(model_), "model.safetensors");
  std::filesystem::remove(weights);
  expect_bad_input(ask(model_), "weights");
}

TEST_F(BrokenModel, MissingOrBrokenTokenizerAndTemplate) {
  write_file(model_ / "chat_template.json", R"({"chat_template": "{% for x in %}"})");
  expect_bad_input(ask(model_), "chat_template");
  std::filesystem::remove(model_ / "chat_template.json");
  EXPECT_EQ(ask(model_).exit_code, 0);  // the family's own
  write_file(model_ / "tokenizer.json", R"({"model": {"type": "Magic"}})");
  expect_bad_input(ask(model_), "tokenizer.json");
  std::filesystem::remove(model_ / "tokenizer.json");
  expect_bad_input(ask(model_), "tokenizer");
}

TEST(Errors, Pictures) {
  const Scratch scratch;
  const auto with_image = [&](const std::string& bytes) {
    write_file(scratch.path() / "x.png", bytes);
    return ask(kModel, {"--image", (scratch.path() / "x.png").string()});
  };
  expect_bad_input(ask(kModel, {"--image", "nothing.png"}), "nothing.png");
  expect_bad_input(ask(kModel, {"--image", scratch.path().string()}), scratch.path().string());
  expect_bad_input(with_image(""), "x.png");
  expect_bad_input(with_image("this is text, whatever its name"), "x.png");
  const std::string good = read_file(kScenes / "scene1.png");
  expect_bad_input(with_image(good.substr(0, good.size() / 2)), "x.png");
  std::string damaged = good;
  damaged[good.size() / 2] ^= 0x10;
  expect_bad_input(with_image(damaged), "x.png");
  expect_bad_input(triptych({"run", kModel.string(), "--image", "-", "--prompt", "x"}, ""), "stdin");
}

TEST(Errors, PromptThatDoesNotFit) {
  const std::string star = (kScenes / "scene1.png").string();
  std::vector<std::string> many;
  for (int i = 0; i < 17; ++i) many.insert(many.end(), {"--image", star});
  expect_bad_input(ask(kModel, many), "1024");
  expect_bad_input(ask(kModel, {"--image", star, "--ctx-size", "50"}), "50");
  expect_bad_input(ask(kModel, {"--ctx-size", "4096"}), "1024");
}

TEST(Errors, Flags) {
  expect_bad_input(triptych({}), "--help");
  expect_bad_input(triptych({"walk"}), "walk");
  expect_bad_input(triptych({"run"}), "MODEL");
  expect_bad_input(ask(kModel, {"--what"}), "--what");
  expect_bad_input(ask(kModel, {"--threads", "0"}), "--threads");
  expect_bad_input(ask(kModel, {"--threads", "many"}), "--threads");
  expect_bad_input(ask(kModel, {"--temperature", "-1"}), "temperature");
  expect_bad_input(ask(kModel, {"--top-p", "1.5"}), "top_p");
  expect_bad_input(ask(kModel, {"--logit-bias", "x"}), "ID=BIAS");
  expect_bad_input(ask(kModel, {"--logit-bias", "100000=1"}), "100000");
  expect_bad_input(ask(kModel, {"--kv-cache-dtype", "int3"}), "int3");
  expect_bad_input(ask(kModel, {"-i"}), "--interactive");
  expect_bad_input(triptych({"run", kModel.string(), "--image", "-"}), "--prompt is needed");
  expect_bad_input(ask(kModel, {"--stop", "caf\xe9"}), "stop:");
  for (const char* flag : {"--min-pixels", "--max-pixels"})
    expect_bad_input(ask(kModel, {flag, "100000"}), std::string(flag) + ": LlavaForConditionalGeneration");
  for (const char* flag : {"--fps", "--max-frames", "--video-fps"}) {
    expect_bad_input(ask(kModel, {flag, "4"}), std::string(flag) + " needs a video");
    expect_bad_input(triptych({"run", kModel.string(), "-i", flag, "4"}),
                     std::string(flag) + ": LlavaForConditionalGeneration does not take videos");
  }
  expect_bad_input(ask(kModel, {"--trace-out", "/nowhere/x.json"}), "/nowhere/x.json");
  expect_bad_input(triptych({"bench"}), "--shapes");
  expect_bad_input(triptych({"bench", "--shapes", "llava-9b"}), "llava-9b");
  expect_bad_input(triptych({"completion", "cmd"}), "cmd");
}

// What a script gives whose variable was not set.
TEST(Errors, EmptyValues) {
  expect_bad_input(triptych({"run", "", "--prompt", "x"}), "MODEL: expected a value");
  for (const char* flag : {"--image", "--video", "--weights", "--lm-head", "--temperature", "--top-k",
                           "--stop", "--draw", "--trace-out", "--vision-tower", "--threads"})
    expect_bad_input(ask(kModel, {flag, ""}), flag);
  expect_bad_input(triptych({"convert", kModel.string(), "", "--weights", "int8"}), "OUT: expected a value");
  expect_bad_input(triptych({"bench", kModel.string(), "--only", ""}), "--only: expected a value");
  expect_bad_input(triptych({"trace", kModel.string(), "--prompt", "x", "--out", ""}), "--out");
  EXPECT_EQ(triptych({"run", kModel.string(), "--prompt", "", "--max-tokens", "1"}).exit_code, 0);
}

TEST(Errors, MessagesNameTheFlagAndWhatIsExpected) {
  expect_bad_input(ask(kModel, {"--temperature", "x"}), "--temperature");
  expect_bad_input(ask(kModel, {"--top-k", "99999999999"}), "--top-k");
  expect_bad_input(ask(kModel, {"--stop-token-ids", "2,x"}), "--stop-token-ids");
  for (const char* flag : {"--weights", "--vision-weights", "--lm-head"})
    for (const char* word : {"int5", "int4:g7", "int4:g32:g64"})
      expect_bad_input(ask(kModel, {flag, word}), std::string(flag) + ": quantization");
  expect_bad_input(ask(kModel, {"--vision-tower", "/nowhere"}), "/nowhere");
  expect_bad_input(ask(kModel, {"--ctx-size", "4096"}), "--ctx-size 4096");
  expect_bad_input(triptych({"bench", kModel.string(), "--prompt-tokens", "100000000"}),
                   "prompt_tokens and decode_tokens: 100000033");
  expect_bad_input(triptych({"convert", kModel.string(), "/nowhere/x/y", "--weights", "int8"}),
                   "/nowhere/x/y: cannot create: there is no folder /nowhere/x");
  expect_bad_input(triptych({"--what"}), "\"--what\"");
}

TEST(Errors, FlagsThatWouldChangeNothing) {
  const std::string model = kModel.string();
  for (const char* flag : {"--trace-allocations", "--replay-allocations"})
    expect_bad_input(triptych({"bench", model, flag, "x"}), std::string(flag) + " goes with --memory");
  expect_bad_input(triptych({"bench", model, "--memory"}), "MODEL does not go with --memory");
  expect_bad_input(triptych({"bench", model, "--limits"}), "MODEL does not go with --limits");
  const Scratch scratch;
  const std::string record = (scratch.path() / "record").string();
  write_file(record, "triptych-allocations 1\n");
  expect_bad_input(triptych({"bench", "--memory", "--replay-allocations", record}), "holds no allocations");
  expect_bad_input(triptych({"bench", "--memory", "--html", "x"}), "--html does not go with --memory");
  expect_bad_input(triptych({"bench", "--limits", "--shapes", "llava-0.5b"}), "--shapes does not go with");
}

TEST_F(BrokenModel, WeightsThatAnotherProgramQuantized) {
  json c = config();
  c["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  set_config(c);
  EXPECT_EQ(ask(model_).exit_code, 0);  // the tensors are all there
  c["text_config"]["num_hidden_layers"] = 5;
  set_config(c);
  expect_bad_input(ask(model_), "quantization_config");
}

TEST(Errors, ReservedHugePagesThatDoNotExist) {
  std::ifstream reserved("/proc/sys/vm/nr_hugepages");
  int n = -1;
  if (!(reserved >> n) || n != 0) GTEST_SKIP() << "this machine has some";
  const RunResult result = triptych({"run", kModel.string(), "--prompt", "x", "--huge-pages", "reserved"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, testing::HasSubstr("vm.nr_hugepages"));
}

TEST(Errors, UnknownInstructionSet) {
  expect_bad_input(triptych({"run", kModel.string(), "--prompt", "x"}, "", {"TRIPTYCH_ISA=mmx"}), "mmx");
}

TEST(Flags, WhatCannotBeMeantIsRefused) {
  const std::vector<std::vector<std::string>> calls = {
      {"run", kModel.string(), "--prompt", "x", "--seed", "-1"},
      {"run", kModel.string(), "--prompt", "x", "--seed", "18446744073709551616"},
      {"run", kModel.string(), "--prompt", "x", "--logprobs", "-1"},
      {"run", kModel.string(), "--prompt", "x", "--exact-groups"},
      {"run", kModel.string(), "--prompt", "caf\xe9"},
      {"verify", kModel.string(), "--tolerance", "nan"},
      {"verify", kModel.string(), "--tolerance", "-1"},
      {"eval", kModel.string(), "--data", "x", "--min-accuracy", "nan"},
      {"bench", "--shapes", "llava-0.5b", "--layers", "999"},
  };
  for (const auto& call : calls) {
    const RunResult result = triptych(call);
    EXPECT_EQ(result.exit_code, 2) << call.back();
    EXPECT_EQ(result.out, "") << call.back();
    EXPECT_THAT(result.err, testing::StartsWith("triptych: error: "));
  }
  EXPECT_EQ(triptych({"run", kModel.string(), "--prompt", "x", "--max-tokens", "1", "--seed",
                      "18446744073709551615"})
                .exit_code,
            0);
}

TEST(Output, AFullDiskIsNoSuccess) {
  if (!std::filesystem::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const RunResult result = run_program({"/bin/sh", "-c", program_path() + " --version > /dev/full"}, "", {});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, testing::HasSubstr("standard output"));
}

TEST(Output, ADeviceOrFifoIsNotReplaced) {
  const Scratch scratch;
  const std::string fifo = (scratch.path() / "fifo").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const RunResult result = triptych({"trace", kModel.string(), "--prompt", "x", "--out", fifo});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, testing::HasSubstr("it is a FIFO"));
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
}

// What makes numbers of a picture is read, not guessed.
TEST(Preprocessor, IsMissing) {
  const Scratch scratch;
  const auto model = scratch.copy_of(kModel, "m");
  std::filesystem::remove(model / "preprocessor_config.json");
  expect_bad_input(triptych({"run", model.string(), "--prompt", "x"}), "preprocessor_config.json is missing");
  // Newer directories hold it in processor_config.json.
  write_file(model / "processor_config.json",
             R"({"image_processor": )" + read_file(kModel / "preprocessor_config.json") + "}");
  EXPECT_EQ(triptych({"run", model.string(), "--prompt", "x", "--max-tokens", "1"}).exit_code, 0);
}

TEST(Preprocessor, BadNumbersAreNamed) {
  const Scratch scratch;
  const auto model = scratch.copy_of(kModel, "m");
  nlohmann::json config = nlohmann::json::parse(read_file(kModel / "preprocessor_config.json"));
  config["image_mean"] = {1e308, 0.5, 0.5};
  write_file(model / "preprocessor_config.json", config.dump());
  expect_bad_input(triptych({"run", model.string(), "--prompt", "x"}),
                   "preprocessor_config.json: image_mean[0]");
}

TEST(Inspect, NamesAnUnsupportedArchitectureWithoutWeights) {
  const Scratch scratch;
  write_file(scratch.path() / "config.json", R"({"architectures": ["MllamaForConditionalGeneration"]})");
  const RunResult result = triptych({"inspect", scratch.path().string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, testing::HasSubstr("MllamaForConditionalGeneration"));
}

}  // namespace
}  // namespace triptych::test
