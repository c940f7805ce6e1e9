#include <fmt/core.h>

#include "base/build_info.h"
#include "base/cpu_info.h"
#include "cli/help_tree.h"

namespace triptych::cli {
namespace {

// Text for roff: backslashes and hyphens that must stay ASCII, and no line that begins a macro.
std::string roff(std::string_view text) {
  std::string out;
  bool at_line_start = true;
  for (const char c : text) {
    if (at_line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    at_line_start = c == '\n';
  }
  return out;
}

void add_option(std::string& out, const HelpOption& option) {
  std::string head;
  for (const std::string& name : option.names)
    head += fmt::format("{}\\fB{}\\fR", head.empty() ? "" : ", ", roff(name));
  if (!option.positional.empty()) head = "\\fI" + roff(option.positional) + "\\fR";
  if (!option.value.empty() && option.positional.empty()) head += " \\fI" + roff(option.value) + "\\fR";
  out += ".TP\n" + head + "\n" + roff(option.description) + "\n";
  if (!option.choices.empty()) {
    out += "One of";
    for (const std::string& choice : option.choices) out += " \\fB" + roff(choice) + "\\fR";
    out += ".\n";
  }
  if (!option.otherwise.empty()) out += "Default: " + roff(option.otherwise) + ".\n";
}

// As usage_of says it, in the faces of manual pages.
std::string synopsis(const HelpVerb& verb) {
  std::string out;
  for (const HelpOption& option : verb.options) {
    if (option.positional.empty()) continue;
    const std::string name = "\\fI" + roff(option.positional) + "\\fR";
    out += option.is_required ? name + ' ' : '[' + name + "] ";
  }
  for (const HelpOption& option : verb.options)
    if (option.positional.empty() && option.is_required)
      out += "\\fB" + roff(option.names.front()) + "\\fR \\fI" + roff(option.value) + "\\fR ";
  return out + "[\\fIoption\\fR ...]";
}

// "Examples:" and the indented lines below it stay as they are.
void add_footer(std::string& out, const std::string& footer) {
  if (!footer.empty()) out += ".PP\n.nf\n" + roff(footer) + "\n.fi\n";
}

}  // namespace

std::string man_page(const CLI::App& program) {
  const std::vector<HelpVerb> tree = help_tree(program);
  const HelpVerb& root = tree.front();
  std::string out =
      fmt::format(".TH TRIPTYCH 1 \"\" \"triptych {}\" \"User Commands\"\n", build_info().version);
  out += ".SH NAME\ntriptych \\- runs and shrinks vision\\-language models\n.SH SYNOPSIS\n";
  for (std::size_t i = 1; i < tree.size(); ++i)
    out += fmt::format("{}\\fBtriptych {}\\fR {}\n", i > 1 ? ".br\n" : "", tree[i].name, synopsis(tree[i]));
  out += ".SH DESCRIPTION\n" + roff(root.description) + "\n.SH OPTIONS\n";
  for (const HelpOption& option : root.options) add_option(out, option);
  out += ".SH COMMANDS\n";
  for (std::size_t i = 1; i < tree.size(); ++i) {
    out += ".SS triptych " + tree[i].name + "\n" + roff(tree[i].description) + ".\n";
    for (const HelpOption& option : tree[i].options) add_option(out, option);
    add_footer(out, tree[i].footer);
  }
  std::string sets;
  for (const Isa isa : known_isas()) sets.append(sets.empty() ? "" : ", ").append(to_string(isa));
  out += ".SH ENVIRONMENT\n.TP\n\\fBTRIPTYCH_ISA\\fR\nNarrows the instruction sets that are used, one of " +
         sets +
         ".\n.TP\n\\fBTRIPTYCH_HISTORY\\fR\nFile that keeps the lines of chats; empty: none "
         "(default: ~/.local/state/triptych/history).\n";
  out += ".SH EXAMPLES AND EXIT CODES\n";
  add_footer(out, root.footer);
  return out;
}

}  // namespace triptych::cli
