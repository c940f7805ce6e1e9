// triptych completion: scripts for the shells.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/help_tree.h"

namespace triptych::cli {

void add_completion_command(CLI::App& program, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App& app = *program.add_subcommand("completion", "Print a completion script for a shell");
  app.add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app.footer(
      "Examples:\n"
      "  source <(triptych completion bash)\n"
      "  triptych completion zsh > ~/.zfunc/_triptych\n"
      "  triptych completion fish > ~/.config/fish/completions/triptych.fish");
  app.callback([&program, shell, &action] {
    action = [&program, shell] {
      const std::string text = completion_script(program, *shell);
      return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? kExitOk : kExitFault;
    };
  });
}

}  // namespace triptych::cli
