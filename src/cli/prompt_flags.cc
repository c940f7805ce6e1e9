#include "cli/prompt_flags.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/help_tree.h"
#include "cli/input_file.h"
#include "unicode/utf8.h"

namespace triptych::cli {

constexpr std::uint64_t kMaxPrompt_bytes = std::uint64_t{16} << 20;

void PromptFlags::add_to(CLI::App& app, const char* description) {
  CLI::Option* text = app.add_option("--prompt,-p", prompt, description)->type_name("TEXT");
  app.add_option("--prompt-file", prompt_file, "Read the question from a file; - is stdin")
      ->type_name("FILE")
      ->excludes(text);
}

bool PromptFlags::reads_stdin() const {
  return prompt == "-" || (!prompt_file.empty() && is_stdin(prompt_file));
}

std::string PromptFlags::read() const {
  if (prompt && *prompt != "-") {
    if (!utf8::is_valid(*prompt)) fail(ErrorCode::kInvalidArgument, "--prompt: expected UTF-8");
    return *prompt;
  }
  const std::string name = prompt ? "-" : prompt_file;
  const std::string what = name == "-" ? "question on stdin" : "--prompt-file: " + name;
  std::string out = read_all_text(name, kMaxPrompt_bytes, what);
  if (out.ends_with('\n')) out.pop_back();
  if (out.ends_with('\r')) out.pop_back();
  return out;
}

}  // namespace triptych::cli
