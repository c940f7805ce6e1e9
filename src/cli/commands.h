// The verbs of the program. Each cmd_<verb>.cc declares its flags on the parser and, when its verb was given,
// leaves what to do in `action`.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace triptych::cli {

/// Does the verb's work and returns the exit code.
using Action = std::function<int()>;

inline constexpr int kExitOk = 0;
inline constexpr int kExitCheckFailed = 1;    // the work was done and its checks failed
inline constexpr int kExitBadInput = 2;       // a flag, file or request that cannot be used
inline constexpr int kExitFault = 3;          // out of memory, or a fault of this program
inline constexpr int kExitInterrupted = 130;  // SIGINT, as shells report it

void add_compress_command(CLI::App& program, Action& action);
void add_convert_command(CLI::App& program, Action& action);
void add_run_command(CLI::App& program, Action& action);
void add_serve_command(CLI::App& program, Action& action);
void add_inspect_command(CLI::App& program, Action& action);
void add_trace_command(CLI::App& program, Action& action);
void add_verify_command(CLI::App& program, Action& action);
void add_eval_command(CLI::App& program, Action& action);
void add_bench_command(CLI::App& program, Action& action);
void add_completion_command(CLI::App& program, Action& action);
void add_help_command(CLI::App& program, Action& action);

/// --json, which every verb has; errors then are JSON, too.
void add_json_flag(CLI::App& app, bool& json,
                   const char* description = "Print one JSON object instead of text");

/// The parser of the whole program; `action` receives what the chosen verb wants done.
void build_program(CLI::App& program, Action& action);

/// Parses and runs. Reports an error as one line on stderr ("triptych: error: ...", or an object with --json)
/// and returns the exit code.
int run_program(int argc, const char* const* argv);

/// "triptych 0.1.0 (revision), compiler, build type, instruction set": the text of --version.
std::string version_text();

}  // namespace triptych::cli
