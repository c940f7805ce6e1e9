#include "cli/profile_output.h"

#include <cstdio>
#include <sstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/profile.h"
#include "cli/help_tree.h"

namespace triptych::cli {

void ProfileFlags::add_to(CLI::App& app) {
  app.add_flag("--profile", profile, "Report on stderr where the time went")->group(help_group::kOutput);
  app.add_option("--trace-out", trace_out, "Write every zone for chrome://tracing or Perfetto")
      ->type_name("FILE")
      ->group(help_group::kOutput);
}

void ProfileFlags::start(const std::vector<NamedPath>& inputs) const {
  if (trace_out) {
    check_output("--trace-out", *trace_out, inputs);
    set_profile_mode(ProfileMode::kTrace);
  } else if (profile) {
    set_profile_mode(ProfileMode::kSummary);
  }
}

void ProfileFlags::finish() const {
  if (profile_mode() == ProfileMode::kOff) return;
  const std::string report = profile ? profile_report() : std::string();
  if (trace_out) {
    std::ostringstream out;
    write_chrome_trace(out);
    write_output("--trace-out", *trace_out, out.view());
  }
  set_profile_mode(ProfileMode::kOff);
  std::fwrite(report.data(), 1, report.size(), stderr);
}

JsonOut profile_json() {
  JsonOut out = JsonOut::array();
  for (const ProfileEntry& entry : profile_entries())
    out.push_back({{"zone", entry.path},
                   {"count", entry.count},
                   {"total_ms", static_cast<double>(entry.total_ns) / 1e6},
                   {"self_ms", static_cast<double>(entry.self_ns) / 1e6},
                   {"share", entry.share}});
  return out;
}

}  // namespace triptych::cli
