// --profile and --trace-out: where the time went.
#pragma once

#include <string>

#include "cli/json_output.h"

namespace CLI {
class App;
}

namespace triptych::cli {

struct ProfileFlags {
  bool profile = false;
  std::string trace_out;

  void add_to(CLI::App& app);
  /// Starts measuring, if asked to. Throws Error(kIo) when --trace-out cannot be written.
  void start() const;
  /// Stops; prints the report on stderr and writes the trace.
  void finish() const;
};

/// The zones as JSON, for --json.
JsonOut profile_json();

}  // namespace triptych::cli
