#include "cli/usage_error.h"

#include <fmt/core.h>

#include <vector>

#include <CLI/CLI.hpp>

#include "base/edit_distance.h"

namespace triptych::cli {
namespace {

std::vector<std::string> verbs_of(const CLI::App& program) {
  std::vector<std::string> out;
  for (const CLI::App* verb : program.get_subcommands([](const CLI::App*) { return true; }))
    out.push_back(verb->get_name());
  return out;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& names) {
  const std::string_view near = nearest_name(word, names);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
  }
  return out;
}

// What the parser found no place for: flags first, since a value behind one that is not known is left over,
// too.
std::string left_over(const CLI::App& app, const std::string& whose) {
  const std::vector<std::string> words = app.remaining();
  for (const std::string& word : words) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("{} has no flag \"{}\"{}", whose, name, suggestion(name, flags_of(app)));
  }
  if (words.empty()) return {};
  return fmt::format("{} was given \"{}\", which belongs to no flag; values follow their flag", whose,
                     words.front());
}

}  // namespace

std::string unknown_verb(const CLI::App& program, std::string_view word) {
  const std::vector<std::string> verbs = verbs_of(program);
  const std::string near = suggestion(word, verbs);
  if (!near.empty()) return fmt::format("no verb is named \"{}\"{} (see triptych --help)", word, near);
  std::string list;
  for (const std::string& verb : verbs) list.append(list.empty() ? "" : ", ").append(verb);
  return fmt::format("no verb is named \"{}\"; there are {} (see triptych --help)", word, list);
}

std::string usage_error(const CLI::App& program, const CLI::ParseError& error) {
  for (const CLI::App* verb : program.get_subcommands()) {
    if (!verb->parsed()) continue;
    const std::string see = fmt::format(" (see triptych {} --help)", verb->get_name());
    const std::string extra = left_over(*verb, verb->get_name());
    return (extra.empty() ? std::string(error.what()) : extra) + see;
  }
  const std::string extra = left_over(program, "triptych");
  if (!extra.empty()) return extra + " (see triptych --help)";
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    return "expected a verb, such as run (see triptych --help)";
  return std::string(error.what()) + " (see triptych --help)";
}

}  // namespace triptych::cli
