#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

#include <CLI/CLI.hpp>

#include "api/public.h"
#include "base/build_info.h"
#include "base/cpu_info.h"
#include "base/error.h"
#include "cli/bus_error.h"
#include "cli/commands.h"
#include "cli/error_output.h"
#include "cli/flag_checks.h"
#include "cli/help_tree.h"
#include "cli/usage_error.h"

namespace triptych::cli {
namespace {

// Help of the verb that was named.
std::string help_of(const CLI::App& program) {
  const std::vector<HelpVerb> tree = help_tree(program);
  const HelpVerb* asked = &tree.front();
  for (const CLI::App* verb : program.get_subcommands())
    for (const HelpVerb& one : tree)
      if (verb->parsed() && one.name == verb->get_name()) asked = &one;
  return help_text(tree, *asked, help_width());
}

// Known before anything is parsed: errors of a command with --json are JSON, those of the command line too.
bool asks_for_json(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--json") return true;
  return false;
}

// Parses, acts, and returns the exit code.
int parse_and_run(CLI::App& program, const Action& action, int argc, const char* const* argv, bool json) {
  if (argc > 1 && argv[1][0] != '-') {  // the parser's own message would not name it
    const auto is_meant = [&](const CLI::App* verb) { return verb->get_name() == argv[1]; };
    const auto verbs = program.get_subcommands([](const CLI::App*) { return true; });
    if (std::none_of(verbs.begin(), verbs.end(), is_meant))
      return report_error(bad_usage(unknown_verb(program, argv[1])), json);
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const std::string text = help_of(program);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    if (!action)
      return report_error(bad_usage(usage_error(program, error)), json);  // --version needs no verb
  }
  return action();
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

void add_json_flag(CLI::App& app, bool& json, const char* description) {
  app.add_flag("--json", json, description)->group(help_group::kOutput);
}

void build_program(CLI::App& program, Action& action) {
  program.name("triptych");
  program.description("Runs and shrinks vision-language models.");
  program.require_subcommand(1);
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
  add_serve_command(program, action);
  add_inspect_command(program, action);
  add_convert_command(program, action);
  add_compress_command(program, action);
  add_trace_command(program, action);
  add_verify_command(program, action);
  add_eval_command(program, action);
  add_bench_command(program, action);
  add_completion_command(program, action);
  add_help_command(program, action);
  for (CLI::App* verb : program.get_subcommands([](const CLI::App*) { return true; }))
    verb->set_help_flag("-h,--help", "Print this help")->group(help_group::kOutput);
  program.set_help_flag("-h,--help", "Print this help");
  settle_values(program);
  program.footer(
      "MODEL is a checkpoint directory as published: config.json, weights, tokenizer.\n\n"
      "Examples:\n"
      "  triptych run MODEL --image photo.jpg --prompt \"What is in the picture?\"\n"
      "  triptych run MODEL\n"
      "  triptych serve MODEL\n"
      "  triptych inspect MODEL\n"
      "  triptych help run\n\n"
      "Exit codes: 0 done, 1 a check failed, 2 bad input, 3 a fault of the program or the machine, 130 "
      "interrupted.");
}

int run_program(int argc, const char* const* argv) {
  const bool json = asks_for_json(argc, argv);
  name_files_in_bus_errors(json);
  const auto fault = [json](const char* message) {
    return report_error({std::string(to_string(ErrorCode::kInternal)), message, kExitFault}, json);
  };
  Action action;
  CLI::App program;
  try {
    build_program(program, action);
    const int code = parse_and_run(program, action, argc, argv, json);
    // What was printed last may still be on its way: a full disk must not look like success.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      return report_error(
          {std::string(to_string(ErrorCode::kIo)), "standard output: cannot write all of it", kExitFault},
          json);
    return code;
  } catch (const Error& error) {
    return report_error(failure_of(error), json);
  } catch (const api::Error& error) {
    return report_error(failure_of(error), json);
  } catch (const std::bad_alloc&) {
    return report_error({std::string(to_string(ErrorCode::kOutOfMemory)), "out of memory", kExitFault}, json);
  } catch (const std::exception& error) {
    return fault(error.what());
  }
}

}  // namespace triptych::cli
