// triptych completion: scripts for the shells.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/help_tree.h"
#include "cli/json_output.h"

namespace triptych::cli {

namespace {

struct CompletionFlags {
  std::string shell;
  bool json = false;
};

int completion(const CLI::App& program, const CompletionFlags& flags) {
  const std::string text = completion_script(program, flags.shell);
  if (!flags.json)
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? kExitOk : kExitFault;
  JsonOut out = json_document("completion");
  out["shell"] = flags.shell;
  out["script"] = text;
  print_json(out);
  return kExitOk;
}

}  // namespace

void add_completion_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<CompletionFlags>();
  CLI::App& app = *program.add_subcommand("completion", "Print a completion script for a shell");
  app.add_option("SHELL", flags->shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  add_json_flag(app, flags->json, "Print one JSON object that holds the script");
  app.footer(
      "Examples:\n"
      "  source <(triptych completion bash)\n"
      "  triptych completion zsh > ~/.zfunc/_triptych\n"
      "  triptych completion fish > ~/.config/fish/completions/triptych.fish");
  app.callback(
      [&program, flags, &action] { action = [&program, flags] { return completion(program, *flags); }; });
}

}  // namespace triptych::cli
