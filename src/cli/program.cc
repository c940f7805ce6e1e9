#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>

#include <CLI/CLI.hpp>

#include "api/public.h"
#include "base/build_info.h"
#include "base/cpu_info.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/help_tree.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInvalidFile:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
    case ErrorCode::kContextLength:
    case ErrorCode::kIo:
      return kExitBadInput;
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kInternal:
      return kExitFault;
  }
  return kExitFault;
}

int exit_code_of(api::ErrorCode code) {
  return code == api::ErrorCode::kOutOfMemory || code == api::ErrorCode::kInternal ? kExitFault
                                                                                   : kExitBadInput;
}

int report(int exit_code, std::string_view message) {
  std::fflush(stdout);
  const std::string line = "triptych: error: " + one_line(message) + '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
  return exit_code;
}

// Help of the deepest verb that was named.
std::string help_of(const CLI::App& program) {
  for (const CLI::App* verb : program.get_subcommands())
    if (verb->parsed()) return verb->help(program.get_name());
  return program.help();
}

int report_usage(const CLI::App& program, const CLI::ParseError& error) {
  std::string verb;
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && program.get_subcommands().empty()) {
    const std::vector<std::string> more = program.remaining();
    return report(kExitBadInput, more.empty() ? "expected a verb, such as run (see triptych --help)"
                                              : fmt::format("expected a verb, such as run, got \"{}\" (see "
                                                            "triptych --help)",
                                                            more.front()));
  }
  for (const CLI::App* sub : program.get_subcommands())
    if (sub->parsed()) verb = ' ' + sub->get_name();
  return report(kExitBadInput, std::string(error.what()) + " (see triptych" + verb + " --help)");
}

// Whatever the parser would take an empty word for, the user did not mean it.
void refuse_empty_values(CLI::App& program) {
  for (CLI::App* verb : program.get_subcommands([](const CLI::App*) { return true; }))
    for (CLI::Option* option : verb->get_options()) {
      const bool is_text = option->check_lname("prompt") || option->check_lname("system");
      if (option->get_items_expected_max() > 0 && !is_text) option->check(is_not_empty());
    }
}

}  // namespace

std::string version_text() {
  const BuildInfo& build = build_info();
  std::string out = fmt::format("triptych {} ({})\n{} {}, {}", build.version, build.revision, build.compiler,
                                build.build_type, build.processor);
  if (*build.sanitizers != '\0') out += fmt::format(", sanitizers {}", build.sanitizers);
  out += fmt::format("\ninstruction set {} of {} on {}, {} processors\n", to_string(active_isa()),
                     to_string(detected_isa()), cpu_name(), usable_cpus());
  return out;
}

void build_program(CLI::App& program, Action& action) {
  program.name("triptych");
  program.description("Runs and shrinks vision-language models.");
  program.require_subcommand(1);
  program.get_formatter()->column_width(34);
  program.add_flag_callback(
      "--version",
      [&action] { action = [] { return std::fputs(version_text().c_str(), stdout) < 0 ? 1 : 0; }; },
      "Print version, compiler, build type and instruction set");
  program
      .add_flag_callback(
          "--help-man",
          [&program, &action] {
            action = [&program] { return std::fputs(man_page(program).c_str(), stdout) < 0 ? 1 : 0; };
          },
          "Print the manual page (roff)")
      ->group("");
  add_run_command(program, action);
  add_inspect_command(program, action);
  add_convert_command(program, action);
  add_trace_command(program, action);
  add_verify_command(program, action);
  add_eval_command(program, action);
  add_bench_command(program, action);
  add_completion_command(program, action);
  refuse_empty_values(program);
  program.footer(
      "Examples:\n"
      "  triptych run MODEL --image photo.jpg --prompt \"What is in the picture?\"\n"
      "  triptych run MODEL -i\n"
      "  triptych inspect MODEL\n\n"
      "Exit codes: 0 done, 1 a check failed, 2 bad input, 3 a fault of the program or the machine, 130 "
      "interrupted.");
}

int run_program(int argc, const char* const* argv) {
  Action action;
  CLI::App program;
  try {
    build_program(program, action);
    if (argc > 1 && argv[1][0] != '-') {  // the parser's own message would not name it
      const auto is_meant = [&](const CLI::App* verb) { return verb->get_name() == argv[1]; };
      const auto verbs = program.get_subcommands([](const CLI::App*) { return true; });
      if (std::none_of(verbs.begin(), verbs.end(), is_meant))
        return report(kExitBadInput, fmt::format("no verb is named \"{}\" (see triptych --help)", argv[1]));
    }
    try {
      program.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      const std::string text = help_of(program);
      std::fwrite(text.data(), 1, text.size(), stdout);
      return kExitOk;
    } catch (const CLI::ParseError& error) {
      if (!action) return report_usage(program, error);  // --version needs no verb
    }
    const int code = action();
    // What was printed last may still be on its way: a full disk must not look like success.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      return report(kExitFault, "standard output: cannot write all of it");
    return code;
  } catch (const Error& error) {
    return report(exit_code_of(error.code()), error.what());
  } catch (const api::Error& error) {
    return report(exit_code_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return report(kExitFault, "out of memory");
  } catch (const std::exception& error) {
    return report(kExitFault, error.what());
  }
}

}  // namespace triptych::cli
