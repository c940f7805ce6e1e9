// A chat at a terminal: letters of any alphabet, pasted text, completion, hints.
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> chat(const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {program_path(), "run", kModel.string()};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

class TerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(kScenes / "scene1.png", scratch_.path() / "größe.png");
    std::filesystem::copy(kScenes / "scene1.png", scratch_.path() / "two words.png");
  }
  // Without a locale, as in containers and services.
  std::vector<std::string> env() const {
    return {"TRIPTYCH_HISTORY=", "TERM=xterm", "LC_ALL=C", "LANG=", "HOME=" + scratch_.path().string()};
  }
  Scratch scratch_;
};

TEST_F(TerminalTest, LettersBeyondAsciiArrive) {
  TerminalProgram program(chat(), env());
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("/größe 東京\n");
  EXPECT_TRUE(program.wait_for("unknown command /größe;")) << program.output();
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("/image " + scratch_.path().string() + "/größe.png\n");
  EXPECT_TRUE(program.wait_for("1 picture or video for the next message")) << program.output();
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("/xé\x7fy\n");  // backspace takes a letter, not a byte of it
  EXPECT_TRUE(program.wait_for("unknown command /xy;")) << program.output();
}

TEST_F(TerminalTest, TabCompletesFileNames) {
  TerminalProgram program(chat(), env());
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("/im\t~/gr\t\n");
  EXPECT_TRUE(program.wait_for("1 picture or video for the next message")) << program.output();
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("/image '~/tw\t\n");
  EXPECT_TRUE(program.wait_for("2 pictures or videos for the next message")) << program.output();
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("/image ~/two\\ words.png\n");
  EXPECT_TRUE(program.wait_for("3 pictures or videos for the next message")) << program.output();
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("/image ~/\t");  // which one?
  EXPECT_TRUE(program.wait_for("größe.png  two words.png")) << program.output();
}

// Weights are used where they are mapped: what is cut off cannot be read any more.
TEST_F(TerminalTest, WeightsThatAreCutShortMeanwhileAreNamed) {
  for (const bool as_json : {false, true}) {
    const std::filesystem::path model = scratch_.copy_of(kModel, as_json ? "json" : "text");
    std::vector<std::string> args = {program_path(), "run", model.string()};
    if (as_json) args.emplace_back("--json");
    TerminalProgram program(args, env());
    ASSERT_TRUE(program.wait_for_prompt());
    std::filesystem::resize_file(model / "model.safetensors", 4096);
    program.type("What is it?\n");
    EXPECT_EQ(program.exit_code(), 2) << program.output();
    EXPECT_THAT(program.output(),
                HasSubstr((model / "model.safetensors").string() + ": cannot be read any more"));
    if (as_json) {
      const std::size_t at = program.output().find("{\"schema\":\"triptych.error/1\"");
      ASSERT_NE(at, std::string::npos) << program.output();
      const json error = json::parse(program.output().substr(at));
      EXPECT_EQ(error["error"]["code"], "io");
      EXPECT_EQ(error["exit_code"], 2);
    }
  }
}

TEST_F(TerminalTest, PastedLinesAreOneMessage) {
  const std::string question = "Is the star\nsmall or large?";
  const json alone = json::parse(triptych({"run", kModel.string(), "--prompt", question, "--json"}).out);
  TerminalProgram program(chat({"--json"}), env());
  ASSERT_TRUE(program.wait_for("\x1b[?2004h"));
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("\x1b[200~Is the star\rsmall or large?\r\x1b[201~");  // terminals send returns
  ASSERT_TRUE(program.wait_for("large?")) << program.output();
  EXPECT_THAT(program.output(), testing::Not(HasSubstr("\"usage\"")));
  program.type("\n");
  ASSERT_TRUE(program.wait_for("\"prompt_tokens\":" + alone["usage"]["prompt_tokens"].dump()))
      << program.output();
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("/quit\n");
  EXPECT_EQ(program.exit_code(), 0);
  const std::string& all = program.output();
  EXPECT_EQ(all.find("\"usage\""), all.rfind("\"usage\""));
  EXPECT_GT(all.rfind("\x1b[?2004l"), all.rfind("\x1b[?2004h"));  // the shell gets its terminal back
}

TEST_F(TerminalTest, AFullContextGetsAHint) {
  TerminalProgram program(chat({"--ctx-size", "40", "--ignore-eos"}), env());
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("Hi\n");
  EXPECT_TRUE(program.wait_for("The context of 40 tokens is full; /reset begins a new conversation"))
      << program.output();
  ASSERT_TRUE(program.wait_for_prompt());
  std::string long_message;
  for (int i = 0; i < 60; ++i) long_message += "star ";
  program.type(long_message + "\n");
  EXPECT_TRUE(program.wait_for("triptych: error: ")) << program.output();
  EXPECT_TRUE(program.wait_for("/reset begins a new conversation")) << program.output();
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("/reset\n");
  ASSERT_TRUE(program.wait_for_prompt());
  program.type("Ha\n");
  EXPECT_TRUE(program.wait_for("The context of 40 tokens is full")) << program.output();
}

}  // namespace
}  // namespace triptych::test
