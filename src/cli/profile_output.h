// --profile and --trace-out: where the time went.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/json_output.h"
#include "cli/output_file.h"

namespace CLI {
class App;
}

namespace triptych::cli {

struct ProfileFlags {
  bool profile = false;
  std::optional<std::string> trace_out;

  void add_to(CLI::App& app);
  /// Starts measuring, if asked to. Throws Error when --trace-out cannot be written, or is one of `inputs`.
  void start(const std::vector<NamedPath>& inputs) const;
  /// Stops; prints the report on stderr and writes the trace.
  void finish() const;
};

/// The zones as JSON, for --json.
JsonOut profile_json();

}  // namespace triptych::cli
