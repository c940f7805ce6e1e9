// --prompt and --prompt-file: the text of a question.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace triptych::cli {

struct PromptFlags {
  std::optional<std::string> prompt;  // "-": stdin
  std::string prompt_file;            // empty: not given; "-": stdin

  /// `description` of --prompt.
  void add_to(CLI::App& app, const char* description);
  bool is_given() const noexcept { return prompt.has_value() || !prompt_file.empty(); }
  bool reads_stdin() const;
  /// The text; one newline at the end of a file is not part of it. Throws Error(kInvalidArgument) for text
  /// that is not UTF-8, and naming the file that cannot be read. Call only when is_given().
  std::string read() const;
};

}  // namespace triptych::cli
