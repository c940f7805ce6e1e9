#include "cli/help_tree.h"

#include <algorithm>

#include <CLI/CLI.hpp>

namespace triptych::cli {
namespace {

HelpOption describe(const CLI::Option& option) {
  HelpOption out;
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  if (out.names.empty()) out.positional = option.get_name(true);
  out.description = option.get_description();
  out.group = option.get_group();
  out.is_required = option.get_required();
  if (option.get_items_expected_max() == 0) return out;
  // "TYPE:{auto,fp32}": the parser adds what its check accepts.
  out.value = option.get_type_name();
  out.otherwise = option.get_default_str();
  const std::size_t brace = out.value.find(":{");
  if (brace != std::string::npos) {
    std::string words = out.value.substr(brace + 2, out.value.find('}', brace) - brace - 2);
    for (std::size_t at = 0; at <= words.size();) {
      const std::size_t comma = std::min(words.find(',', at), words.size());
      out.choices.push_back(words.substr(at, comma - at));
      at = comma + 1;
    }
    out.value.resize(brace);
  }
  return out;
}

HelpVerb describe(const CLI::App& app) {
  HelpVerb out{.name = app.get_name(),
               .description = app.get_description(),
               .footer = app.get_footer(),
               .options = {}};
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) out.options.push_back(describe(*option));
  return out;
}

}  // namespace

void show_first(CLI::App& verb, const std::vector<std::string>& names) {
  for (const std::string& name : names) verb.get_option("--" + name)->group(help_group::kMain);
}

std::string usage_of(const HelpVerb& verb) {
  std::string out;
  for (const HelpOption& option : verb.options)
    if (!option.positional.empty())
      out += option.is_required ? option.positional + ' ' : '[' + option.positional + "] ";
  for (const HelpOption& option : verb.options)
    if (option.positional.empty() && option.is_required)
      out += option.names.front() + ' ' + option.value + ' ';
  return out + "[OPTION ...]";
}

std::vector<HelpVerb> help_tree(const CLI::App& program) {
  std::vector<HelpVerb> out{describe(program)};
  out.front().name.clear();
  for (const CLI::App* verb :
       program.get_subcommands([](const CLI::App* app) { return !app->get_name().empty(); }))
    out.push_back(describe(*verb));
  return out;
}

}  // namespace triptych::cli
