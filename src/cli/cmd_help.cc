// triptych help: the help of a verb, for people and, with --json, for programs.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/help_tree.h"
#include "cli/json_output.h"
#include "cli/usage_error.h"

namespace triptych::cli {
namespace {

struct HelpFlags {
  std::string verb;
  bool json = false;
};

JsonOut verb_json(const HelpVerb& verb) {
  JsonOut out = {{"name", verb.name}, {"description", verb.description}, {"options", JsonOut::array()}};
  for (const HelpOption& option : verb.options) {
    JsonOut one = {{"names", option.names},
                   {"positional", option.positional.empty() ? JsonOut() : JsonOut(option.positional)},
                   {"value", option.value.empty() ? JsonOut() : JsonOut(option.value)},
                   {"choices", option.choices},
                   {"description", option.description},
                   {"default", option.otherwise.empty() ? JsonOut() : JsonOut(option.otherwise)},
                   {"group", option.group},
                   {"required", option.is_required}};
    out["options"].push_back(std::move(one));
  }
  return out;
}

int help(const CLI::App& program, const HelpFlags& flags) {
  const std::vector<HelpVerb> tree = help_tree(program);
  const HelpVerb* chosen = nullptr;
  for (const HelpVerb& verb : tree)
    if (verb.name == flags.verb) chosen = &verb;
  if (chosen == nullptr) fail(ErrorCode::kInvalidArgument, "{}", unknown_verb(program, flags.verb));
  if (flags.json) {
    JsonOut out = json_document("help");
    out["verbs"] = JsonOut::array();
    for (const HelpVerb& verb : tree)
      if (chosen == &tree.front() || &verb == chosen) out["verbs"].push_back(verb_json(verb));
    print_json(out);
  } else {
    std::fputs(help_text(tree, *chosen, help_width()).c_str(), stdout);
  }
  return kExitOk;
}

}  // namespace

void add_help_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<HelpFlags>();
  CLI::App& app = *program.add_subcommand("help", "Show the flags of a verb");
  app.add_option("VERB", flags->verb, "The verb; without it all verbs are listed");
  add_json_flag(app, flags->json, "Print verbs and flags as one JSON object");
  app.footer(
      "Examples:\n"
      "  triptych help run\n"
      "  triptych help --json");
  app.callback([&program, flags, &action] { action = [&program, flags] { return help(program, *flags); }; });
}

}  // namespace triptych::cli
