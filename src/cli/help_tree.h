// The verbs and flags of the program as plain data, read off the parser: the manual page and the shell
// completions are made from it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace triptych::cli {

struct HelpOption {
  std::vector<std::string> names;    // "--image", "-p"; empty for a positional
  std::string positional;            // "MODEL"; empty for a flag
  std::string value;                 // "FILE", "N"; empty when it takes none
  std::vector<std::string> choices;  // the words it takes, if they are few
  std::string description;
};

struct HelpVerb {
  std::string name;  // empty for the program itself
  std::string description;
  std::string footer;
  std::vector<HelpOption> options;
};

/// The program first, then its verbs. Hidden flags are left out.
std::vector<HelpVerb> help_tree(const CLI::App& program);

/// The manual page, in the man macros (groff_man(7)).
std::string man_page(const CLI::App& program);

/// A completion script for "bash", "zsh" or "fish". Throws Error(kInvalidArgument) for another shell.
std::string completion_script(const CLI::App& program, const std::string& shell);

}  // namespace triptych::cli
