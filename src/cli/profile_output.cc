#include "cli/profile_output.h"

#include <cstdio>
#include <fstream>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/profile.h"

namespace triptych::cli {

void ProfileFlags::add_to(CLI::App& app) {
  app.add_flag("--profile", profile, "Report on stderr where the time went");
  app.add_option("--trace-out", trace_out,
                 "Write every zone for chrome://tracing or Perfetto (with --profile)")
      ->type_name("FILE");
}

void ProfileFlags::start() const {
  if (!trace_out.empty() && !std::ofstream(trace_out))
    fail(ErrorCode::kIo, "--trace-out: cannot write {}", trace_out);
  if (!trace_out.empty()) {
    set_profile_mode(ProfileMode::kTrace);
  } else if (profile) {
    set_profile_mode(ProfileMode::kSummary);
  }
}

void ProfileFlags::finish() const {
  if (profile_mode() == ProfileMode::kOff) return;
  const std::string report = profile ? profile_report() : std::string();
  if (!trace_out.empty()) {
    std::ofstream out(trace_out);
    write_chrome_trace(out);
    if (!out.flush()) fail(ErrorCode::kIo, "--trace-out: cannot write {}", trace_out);
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
