// Conversations that are saved and loaded, and several answers to a prompt, with the model that ships.
#include <nlohmann/json.hpp>

#include "e2e/json_schema.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kStar = (kScenes / "scene1.png").string();

RunResult chat(const std::string& lines, std::vector<std::string> more = {}) {
  std::vector<std::string> args = {"run", kModel.string(), "--json"};
  args.insert(args.end(), more.begin(), more.end());
  return triptych(args, lines);
}

std::vector<json> documents(const RunResult& result) {
  std::vector<json> out;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    out.push_back(json::parse(line));
    EXPECT_EQ(document_problem(out.back()), "");
  }
  return out;
}

TEST(Session, ALoadedChatGoesOnAsIfNothingHadHappened) {
  const Scratch scratch;
  const std::string file = (scratch.path() / "chat.session").string();
  const std::string first = "/image " + kStar + "\nDescribe the image.\n";
  const std::string second = "Is the star small or large?\n";
  const RunResult whole = chat(first + "/save " + file + "\n" + second);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const RunResult loaded = chat("/load " + file + "\n" + second);
  ASSERT_EQ(loaded.exit_code, 0) << loaded.err;
  json expected = documents(whole).at(1);
  json got = documents(loaded).at(0);
  EXPECT_EQ(got["text"], "small");
  EXPECT_GT(got["usage"]["reused_tokens"], 64) << "the picture's rows among them";
  EXPECT_EQ(got["timings"]["encode_ms"], 0.0) << "the tower did not run";
  expected.erase("timings");
  got.erase("timings");
  EXPECT_EQ(got, expected);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1) << "no other file";
}

TEST(Session, FilesThatCannotBeUsedChangeNothing) {
  const Scratch scratch;
  const std::string file = (scratch.path() / "chat.session").string();
  const std::string photo = (scratch.path() / "photo.png").string();
  std::filesystem::copy(kStar, photo);
  ASSERT_EQ(chat("/image " + kStar + "\nDescribe the image.\n/save " + file + "\n").exit_code, 0);
  const std::string bytes = read_file(file);
  write_file(scratch.path() / "cut", bytes.substr(0, bytes.size() / 2));
  std::string damaged = bytes;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  write_file(scratch.path() / "damaged", damaged);
  const std::string question = "Is the star small or large?\n";
  const auto refused = [&](const std::string& line, const std::string& part,
                           std::vector<std::string> more = {}) {
    const RunResult result = chat("/image " + kStar + "\n" + line + "\n" + question, std::move(more));
    EXPECT_EQ(result.exit_code, 2) << line;
    EXPECT_THAT(result.err, HasSubstr(part)) << line;
    EXPECT_EQ(documents(result).at(0)["text"], "small") << "picture and conversation are as before";
  };
  refused("/load " + (scratch.path() / "cut").string(), "cut off");
  refused("/load " + (scratch.path() / "damaged").string(), "checksum");
  refused("/load " + photo, "no saved session");
  refused("/load " + (scratch.path() / "absent").string(), "absent");
  refused("/load", "needs a file name");
  refused("/load " + file, "--kv-cache-dtype", {"--kv-cache-dtype", "bf16"});
  refused("/load " + file, "another model", {"--weights", "int8", "--kv-cache-dtype", "fp16"});
  refused("/save " + photo, "no saved session");
  EXPECT_EQ(read_file(photo), read_file(kStar));
  refused("/save " + (scratch.path() / "no" / "folder").string(), "no folder");
  refused("/save " + (kModel / "config.json").string(), "MODEL");
  EXPECT_EQ(read_file(file), bytes);
}

TEST(Choices, AreSeveralAnswersToOnePrompt) {
  const std::vector<std::string> ask = {
      "run", kModel.string(), "--image", kStar,          "--prompt", "Describe the image.", "--temperature",
      "3",   "--seed",        "5",       "--max-tokens", "12"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), ask.begin(), ask.end());
    return triptych(more);
  };
  const json three = json::parse(run({"--n", "3", "--json", "--logprobs", "0"}).out);
  EXPECT_EQ(document_problem(three), "");
  ASSERT_EQ(three["choices"].size(), 3U);
  EXPECT_EQ(three["text"], three["choices"][0]["text"]);
  EXPECT_NE(three["choices"][1]["token_ids"], three["choices"][0]["token_ids"]);
  const json one = json::parse(run({"--json"}).out);
  EXPECT_FALSE(one.contains("choices"));
  EXPECT_EQ(one["token_ids"], three["choices"][0]["token_ids"]);
  EXPECT_EQ(one["usage"]["prompt_tokens"], three["usage"]["prompt_tokens"]);
  std::size_t n_tokens = 0;
  std::size_t best = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    n_tokens += three["choices"][i]["token_ids"].size();
    if (three["choices"][i]["cumulative_logprob"] > three["choices"][best]["cumulative_logprob"]) best = i;
  }
  EXPECT_EQ(three["usage"]["completion_tokens"], n_tokens);
  EXPECT_EQ(json::parse(run({"--best-of", "3", "--json"}).out)["text"], three["choices"][best]["text"]);
  const RunResult text = run({"--n", "2"});
  EXPECT_EQ(text.out, three["choices"][0]["text"].get<std::string>() + "\n\n" +
                          three["choices"][1]["text"].get<std::string>() + "\n");
  EXPECT_EQ(run({"--n", "0"}).exit_code, 2);
  expect_bad_input(run({"--n", "3", "--best-of", "2"}), "best_of");
  expect_bad_input(triptych({"run", kModel.string(), "--n", "2"}), "--n needs --prompt");
}

TEST(Choices, OfLinesOfABatch) {
  const Scratch scratch;
  const std::string in = (scratch.path() / "in.jsonl").string();
  const std::string out = (scratch.path() / "out.jsonl").string();
  write_file(in, R"({"prompt":"Describe the image.","image":")" + kStar + "\"}\n" +
                     R"({"prompt":"Is the star small or large?","image":")" + kStar + "\"}\n");
  const RunResult result = triptych({"run", kModel.string(), "--jsonl", in, out, "--n", "3", "--batch", "4",
                                     "--enable-prefix-caching", "--prefix-cache-gb", "0.5"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(read_file(out));
  int n_lines = 0;
  for (std::string line; std::getline(lines, line); ++n_lines) {
    const json answer = json::parse(line);
    EXPECT_EQ(document_problem(answer), "");
    ASSERT_EQ(answer["choices"].size(), 3U);
    for (const json& choice : answer["choices"]) EXPECT_EQ(choice["text"], answer["text"]) << "greedy";
  }
  EXPECT_EQ(n_lines, 2);
}

}  // namespace
}  // namespace triptych::test
