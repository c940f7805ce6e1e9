// Shell completions. Each shell gets a short script whose tables come from the parser itself; a value is
// completed as its placeholder says: FILE and DIR as paths, listed words as such, everything else not at all.
#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "cli/help_tree.h"

namespace triptych::cli {
namespace {

std::string join(const std::vector<std::string>& words, std::string_view between = " ") {
  std::string out;
  for (const std::string& word : words) out.append(out.empty() ? "" : between).append(word);
  return out;
}

std::string joined_names(const std::vector<const HelpOption*>& options, std::string_view between) {
  std::vector<std::string> names;
  for (const HelpOption* option : options)
    names.insert(names.end(), option->names.begin(), option->names.end());
  return join(names, between);
}

// 'text' for a shell: quotes closed, escaped and opened again.
std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

const HelpOption* positional_of(const HelpVerb& verb) {
  for (const HelpOption& option : verb.options)
    if (!option.positional.empty()) return &option;
  return nullptr;
}

std::string bash_reply(const HelpOption& option) {
  if (!option.choices.empty())
    return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$word\"))", join(option.choices));
  if (option.value == "FILE") return "COMPREPLY=($(compgen -f -- \"$word\"))";
  if (option.value == "DIR") return "COMPREPLY=($(compgen -d -- \"$word\"))";
  return "COMPREPLY=()";
}

std::string bash(const std::vector<HelpVerb>& tree) {
  std::string out =
      "# bash completion of triptych\n_triptych() {\n"
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" "
      "verb=\"${COMP_WORDS[1]}\"\n"
      "  compopt -o filenames 2>/dev/null\n"
      "  if ((COMP_CWORD == 1)); then\n";
  std::vector<std::string> verbs;
  for (std::size_t i = 1; i < tree.size(); ++i) verbs.push_back(tree[i].name);
  for (const HelpOption& option : tree.front().options)
    for (const std::string& name : option.names) verbs.push_back(name);
  out +=
      fmt::format("    COMPREPLY=($(compgen -W '{}' -- \"$word\"))\n    return\n  fi\n  case \"$verb\" in\n",
                  join(verbs));
  for (std::size_t i = 1; i < tree.size(); ++i) {
    const HelpVerb& verb = tree[i];
    out += "  " + verb.name + ")\n    case \"$before\" in\n";
    std::vector<const HelpOption*> all;
    for (const HelpOption& option : verb.options) {
      all.push_back(&option);
      if (!option.names.empty() && !option.value.empty())
        out += fmt::format("    {}) {}; return ;;\n", join(option.names, "|"), bash_reply(option));
    }
    out += fmt::format(
        "    esac\n    if [[ \"$word\" == -* ]]; then\n      COMPREPLY=($(compgen -W '{}' -- \"$word\"))\n",
        joined_names(all, " "));
    if (const HelpOption* positional = positional_of(verb))
      out += "    else\n      " + bash_reply(*positional) + "\n";
    out += "    fi ;;\n";
  }
  return out + "  esac\n}\ncomplete -F _triptych triptych\n";
}

// zsh's _arguments wants [ ] and : of a description escaped.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const HelpOption& option) {
  if (!option.choices.empty()) return "(" + join(option.choices) + ")";
  if (option.value == "FILE") return "_files";
  if (option.value == "DIR") return "_files -/";
  return " ";
}

std::string zsh(const std::vector<HelpVerb>& tree) {
  std::string out = "#compdef triptych\n_triptych() {\n  if ((CURRENT == 2)); then\n    local -a verbs=(\n";
  for (std::size_t i = 1; i < tree.size(); ++i)
    out += "      " + single_quoted(tree[i].name + ":" + zsh_text(tree[i].description)) + "\n";
  for (const HelpOption& option : tree.front().options)
    for (const std::string& name : option.names)
      out += "      " + single_quoted(name + ":" + zsh_text(option.description)) + "\n";
  out +=
      "    )\n    _describe command verbs\n    return\n  fi\n  local verb=\"${words[2]}\"\n"
      "  words=(\"${(@)words[2,-1]}\")\n  ((CURRENT--))\n  case \"$verb\" in\n";
  for (std::size_t i = 1; i < tree.size(); ++i) {
    out += "  " + tree[i].name + ")\n    _arguments";
    for (const HelpOption& option : tree[i].options) {
      if (!option.positional.empty()) {
        out += " \\\n      " + single_quoted(fmt::format("1:{}:{}", option.positional, zsh_action(option)));
        continue;
      }
      for (const std::string& name : option.names) {
        std::string spec = fmt::format("*{}[{}]", name, zsh_text(option.description));
        if (!option.value.empty()) spec += fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option));
        out += " \\\n      " + single_quoted(spec);
      }
    }
    out += " ;;\n";
  }
  return out + "  esac\n}\n_triptych \"$@\"\n";
}

std::string fish(const std::vector<HelpVerb>& tree) {
  std::string out = "# fish completion of triptych\ncomplete -c triptych -f\n";
  const auto quoted = [](std::string_view text) {
    std::string escaped;
    for (const char c : text) escaped += (c == '\'' || c == '\\') ? std::string("\\") + c : std::string(1, c);
    return "'" + escaped + "'";
  };
  for (std::size_t i = 1; i < tree.size(); ++i)
    out += fmt::format("complete -c triptych -n __fish_use_subcommand -a {} -d {}\n", tree[i].name,
                       quoted(tree[i].description));
  for (const HelpVerb& verb : tree) {
    const std::string when =
        verb.name.empty() ? "__fish_use_subcommand" : "'__fish_seen_subcommand_from " + verb.name + "'";
    for (const HelpOption& option : verb.options) {
      std::string line = "complete -c triptych -n " + when;
      for (const std::string& name : option.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.value == "DIR") {
        line += option.positional.empty() ? " -xa '(__fish_complete_directories)'"
                                          : " -a '(__fish_complete_directories)'";
      } else if (option.value == "FILE") {
        line += " -rF";
      } else if (!option.choices.empty()) {
        line += " -xa " + quoted(join(option.choices));
      } else if (!option.value.empty()) {
        line += " -x";
      }
      out += line + (option.positional.empty() ? " -d " + quoted(option.description) : "") + "\n";
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const CLI::App& program, const std::string& shell) {
  const std::vector<HelpVerb> tree = help_tree(program);
  if (shell == "bash") return bash(tree);
  if (shell == "zsh") return zsh(tree);
  if (shell == "fish") return fish(tree);
  fail(ErrorCode::kInvalidArgument, "completion: expected bash, zsh or fish, got \"{}\"", shell);
}

}  // namespace triptych::cli
