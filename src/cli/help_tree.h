// The verbs and flags of the program as plain data, read off the parser: the manual page and the shell
// completions are made from it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace triptych::cli {

/// Headings of flags, in the order of help. CLI11 keeps one a flag.
namespace help_group {
inline constexpr const char* kMain = "Most used";
inline constexpr const char* kMedia = "Pictures and videos";
inline constexpr const char* kSampling = "Sampling";
inline constexpr const char* kContext = "Context";
inline constexpr const char* kWeights = "Weights and precision";
inline constexpr const char* kMachine = "Machine";
inline constexpr const char* kOutput = "Output";
}  // namespace help_group

struct HelpOption {
  std::vector<std::string> names;    // "--image", "-p"; empty for a positional
  std::string positional;            // "MODEL"; empty for a flag
  std::string value;                 // "FILE", "N"; empty when it takes none
  std::vector<std::string> choices;  // the words it takes, if they are few
  std::string description;
  std::string otherwise;  // what counts when it is not given; empty: nothing worth saying
  std::string group;      // one of help_group, or of the verb's own
  bool is_required = false;
};

struct HelpVerb {
  std::string name;  // empty for the program itself
  std::string description;
  std::string footer;
  std::vector<HelpOption> options;
};

/// Puts flags that people need first under a heading of their own; names without dashes.
void show_first(CLI::App& verb, const std::vector<std::string>& names);

/// "MODEL [OPTION ...]": the positionals of a verb, those that may be left out in brackets.
std::string usage_of(const HelpVerb& verb);

/// The help of one verb, or of the program with the list of its verbs: flags under their headings, all
/// wrapped to `width` columns (60 at least).
std::string help_text(const std::vector<HelpVerb>& tree, const HelpVerb& verb, int width);

/// Columns of the terminal that stdout is: $COLUMNS if that is a number, else what the terminal says, else
/// 80; 120 at most, which reads better.
int help_width();

/// The program first, then its verbs. Hidden flags are left out.
std::vector<HelpVerb> help_tree(const CLI::App& program);

/// The manual page, in the man macros (groff_man(7)).
std::string man_page(const CLI::App& program);

/// A completion script for "bash", "zsh" or "fish". Throws Error(kInvalidArgument) for another shell.
std::string completion_script(const CLI::App& program, const std::string& shell);

}  // namespace triptych::cli
