// The visual cache through the program itself: what a second start finds, and what it makes of a folder that
// is damaged, full, shared or left by a process that was killed.
#include <fmt/core.h>

#include <cstdint>
#include <thread>

#include "e2e/json_schema.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class VisualCache : public testing::Test {
 protected:
  std::vector<std::string> command(std::vector<std::string> more = {}) const {
    std::vector<std::string> out = {"run",
                                    kModel.string(),
                                    "--image",
                                    (kScenes / "scene1.png").string(),
                                    "--prompt",
                                    "Describe the image.",
                                    "--visual-cache-dir",
                                    folder().string(),
                                    "--threads",
                                    "1",
                                    "--json"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  json run(std::vector<std::string> more = {}, const std::string& warning = "") const {
    const RunResult result = triptych(command(std::move(more)));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (warning.empty())
      EXPECT_EQ(result.err, "");
    else
      EXPECT_THAT(result.err, HasSubstr(warning));
    json out = json::parse(result.out);
    EXPECT_EQ(document_problem(out), "");
    return out;
  }
  fs::path folder() const { return scratch_.path() / "rows"; }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(folder())) out.push_back(entry.path());
    return out;
  }
  static std::int64_t n_cached(const json& answer) { return answer["usage"]["cached_images"]; }

  Scratch scratch_;
};

TEST_F(VisualCache, ASecondStartEncodesNothing) {
  const json first = run();
  EXPECT_EQ(n_cached(first), 0);
  ASSERT_EQ(files().size(), 1U);
  const json second = run();
  EXPECT_EQ(n_cached(second), 1);
  EXPECT_EQ(second["text"], first["text"]);
  EXPECT_EQ(second["token_ids"], first["token_ids"]);
  EXPECT_LT(second["timings"]["encode_ms"].get<double>(), first["timings"]["encode_ms"].get<double>());
  // Another tower, or another picture, is something else.
  EXPECT_EQ(n_cached(run({"--vision-weights", "int8"})), 0);
  EXPECT_EQ(n_cached(run({"--image", (kScenes / "scene0.png").string()})), 1) << "one of two";
  EXPECT_EQ(files().size(), 3U);
}

TEST_F(VisualCache, RowsInInt8TakeAQuarterAndAnswerTheSame) {
  const json exact = run();
  const auto exact_bytes = fs::file_size(files().front());
  fs::remove_all(folder());
  const json first = run({"--visual-cache-dtype", "int8"});
  EXPECT_LT(static_cast<double>(fs::file_size(files().front())), 0.3 * static_cast<double>(exact_bytes));
  const json second = run({"--visual-cache-dtype", "int8"});
  EXPECT_EQ(n_cached(second), 1);
  EXPECT_EQ(first["text"], exact["text"]);
  EXPECT_EQ(second["text"], exact["text"]);
}

TEST_F(VisualCache, EvalFindsThePicturesOfAnEarlierRun) {
  const auto eval = [&] {
    const RunResult result = triptych(
        {"eval", kModel.string(), "--data", (kSource / "assets/eval/scenes").string(), "--limit", "6",
         "--no-likelihood", "--threads", "1", "--visual-cache-dir", folder().string(), "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  };
  const json first = eval();
  EXPECT_GT(first["pictures_encoded"], 0);
  const json second = eval();
  EXPECT_EQ(second["pictures_encoded"], 0);
  EXPECT_EQ(second["total"], first["total"]);
}

TEST_F(VisualCache, ADamagedFileIsSaidAndMadeAnew) {
  const json first = run();
  const fs::path file = files().front();
  const std::string whole = read_file(file);
  for (const std::string& damaged :
       {whole.substr(0, whole.size() / 2), std::string("not such a file"), std::string(),
        whole.substr(0, whole.size() - 1) + static_cast<char>(whole.back() ^ 1)}) {
    write_file(file, damaged);
    const json again = run({}, file.filename().string() + ": not used, and removed");
    EXPECT_EQ(n_cached(again), 0);
    EXPECT_EQ(again["text"], first["text"]);
    const json later = run();
    EXPECT_EQ(n_cached(later), 1);
    EXPECT_EQ(later["text"], first["text"]);
  }
}

// What a full disk does: a file may have 1 KiB.
TEST_F(VisualCache, AFullDiskIsAWarning) {
  std::string line = "trap '' XFSZ; ulimit -f 1; exec " + program_path();
  for (const std::string& word : command()) line += " '" + word + "'";
  const RunResult result = run_program({"bash", "-c", line});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rows of pictures cannot be kept there"));
  EXPECT_EQ(json::parse(result.out)["text"], run()["text"]);
}

TEST_F(VisualCache, SeveralProcessesShareAFolder) {
  std::vector<RunResult> results(4);
  std::vector<std::thread> threads;
  for (RunResult& result : results) threads.emplace_back([&] { result = triptych(command()); });
  for (std::thread& thread : threads) thread.join();
  const json later = run();
  EXPECT_EQ(n_cached(later), 1);
  for (const RunResult& result : results) {
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(json::parse(result.out)["text"], later["text"]);
  }
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(VisualCache, AProcessThatIsKilledLeavesNothingWrong) {
  const auto eval = [&](const std::function<bool()>& kill_when) {
    return run_program(
        {program_path(), "eval", kModel.string(), "--data", (kSource / "assets/eval/scenes").string(),
         "--limit", "300", "--threads", "1", "--visual-cache-dir", folder().string(), "--json"},
        "", {"TRIPTYCH_HISTORY="}, std::chrono::seconds(300), kill_when);
  };
  fs::create_directory(folder());
  for (const std::size_t n_files : {1U, 8U}) {  // of 66 pictures
    const RunResult killed = eval([&] { return files().size() >= n_files; });
    ASSERT_EQ(killed.exit_code, 128 + 9) << "its end came before file " << n_files;
  }
  const RunResult whole = eval(nullptr);
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.err, testing::Not(HasSubstr("not used")));
  EXPECT_GT(json::parse(whole.out)["total"]["accuracy"], 0.9);
}

TEST_F(VisualCache, AFolderThatCannotBeIsBadInput) {
  write_file(folder(), "a file");
  RunResult result = triptych(command());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out + result.err, HasSubstr("expected a folder"));
  result = triptych({"run", kModel.string(), "--prompt", "x", "--visual-cache-dtype", "int4"});
  expect_bad_input(result, "--visual-cache-dtype");
}

}  // namespace
}  // namespace triptych::test
