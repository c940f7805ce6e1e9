// The text of --help and of `triptych help`.
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "cli/help_tree.h"

namespace triptych::cli {
namespace {

constexpr std::size_t kNames_columns = 30;  // of names; a description begins behind them

// Words on lines of `width` columns, the first of which begins at column `at`.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width, std::size_t at) {
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t begin = text.find_first_not_of(" \n", from);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const bool is_first = out.empty();
    if (!is_first && at + 1 + word.size() > width) {
      out += '\n' + std::string(indent, ' ');
      at = indent;
    } else if (!is_first) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
    from = end;
  }
  return out;
}

std::string names_of(const HelpOption& option) {
  if (!option.positional.empty()) return option.positional;
  std::vector<std::string> names = option.names;  // short ones first, as everywhere
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return name[1] != '-'; });
  std::string out;
  for (const std::string& name : names) out.append(out.empty() ? "" : ", ").append(name);
  return option.value.empty() ? out : out + ' ' + option.value;
}

std::string description_of(const HelpOption& option) {
  std::string out = option.description;
  if (!option.choices.empty()) {
    bool all_said = true;
    for (const std::string& choice : option.choices)
      all_said = all_said && out.find(choice) != std::string::npos;
    std::string list;
    for (const std::string& choice : option.choices) list.append(list.empty() ? "" : ", ").append(choice);
    if (!all_said) out += ": " + list;
  }
  if (!option.otherwise.empty()) out += fmt::format(" [default: {}]", option.otherwise);
  return out;
}

void add_row(std::string& out, const std::string& names, std::string_view description, std::size_t width) {
  std::string line = "  " + names;
  if (line.size() + 2 > kNames_columns) {
    out += line + '\n';
    line.clear();
  }
  line.resize(kNames_columns, ' ');
  out += line + wrapped(description, kNames_columns, width, kNames_columns) + '\n';
}

// Paragraphs are wrapped; indented lines, such as examples, stay as they are.
void add_footer(std::string& out, std::string_view footer, std::size_t width) {
  std::string paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) out += wrapped(paragraph, 0, width, 0) + '\n';
    paragraph.clear();
  };
  for (std::size_t from = 0; from <= footer.size();) {
    const std::size_t end = std::min(footer.find('\n', from), footer.size());
    const std::string_view line = footer.substr(from, end - from);
    if (line.empty() || line[0] == ' ') {
      end_paragraph();
      out += std::string(line) + '\n';
    } else {
      paragraph += std::string(line) + ' ';
      if (line.ends_with(':')) end_paragraph();
    }
    from = end + 1;
  }
  end_paragraph();
}

std::vector<std::string> groups_of(const HelpVerb& verb) {
  std::vector<std::string> out = {help_group::kMain,    help_group::kMedia,   help_group::kSampling,
                                  help_group::kContext, help_group::kWeights, help_group::kMachine,
                                  help_group::kOutput};
  auto own = out.begin() + 1;  // the verb's own stand behind what is used most
  for (const HelpOption& option : verb.options)
    if (std::find(out.begin(), out.end(), option.group) == out.end()) own = out.insert(own, option.group) + 1;
  return out;
}

}  // namespace

std::string help_text(const std::vector<HelpVerb>& tree, const HelpVerb& verb, int width) {
  const auto columns = static_cast<std::size_t>(std::max(width, 60));
  const bool is_program = verb.name.empty();
  std::string out = is_program ? "Usage: triptych VERB ...\n\n"
                               : fmt::format("Usage: triptych {} {}\n\n", verb.name, usage_of(verb));
  out += wrapped(verb.description, 0, columns, 0) + '\n';
  if (is_program) {
    out += "\nVerbs:\n";
    for (const HelpVerb& one : tree)
      if (!one.name.empty()) add_row(out, one.name, one.description, columns);
  }
  bool any = false;
  for (const HelpOption& option : verb.options) {
    if (option.positional.empty()) continue;
    if (!any) out += '\n';
    any = true;
    add_row(out, names_of(option), description_of(option), columns);
  }
  for (const std::string& group : groups_of(verb)) {
    std::string rows;
    for (const HelpOption& option : verb.options)
      if (option.positional.empty() && option.group == group)
        add_row(rows, names_of(option), description_of(option), columns);
    if (!rows.empty()) out += '\n' + group + ":\n" + rows;
  }
  if (verb.footer.empty()) return out;
  out += '\n';
  add_footer(out, verb.footer, columns);
  return out;
}

int help_width() {
  constexpr int kMost = 120;
  if (const char* columns = std::getenv("COLUMNS")) {
    const std::string_view text(columns);
    int n = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), n);
    if (end.ec == std::errc() && end.ptr == text.data() + text.size() && n > 0) return std::min(n, kMost);
  }
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::min<int>(size.ws_col, kMost);
  return 80;
}

}  // namespace triptych::cli
