// What a load test came to, as tables for people, as JSON and as an HTML page.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "benchmark/load_client.h"
#include "benchmark/serve_report.h"

namespace triptych {

/// A run and what it was made with.
struct LoadReport {
  std::string url, model;
  std::string load;  // "16 clients in a closed loop"
  int n_clients = 0;
  LoadRun run;
};

struct LoadSummary {
  ServeSummary served;                        // without what only an engine knows
  std::map<int, std::size_t> statuses;        // 0: no answer came
  std::map<std::string, std::size_t> errors;  // by message
  Percentiles refusal_ms;                     // of answers that refuse, from arrival to their end
  std::size_t most_in_flight = 0;
  double mean_in_flight = 0;  // over time
};
LoadSummary summarize(const LoadRun& run);

std::string load_text(const LoadReport& report);
JsonOut load_json(const LoadReport& report);
/// Well-formed as XML, too.
std::string load_html(const LoadReport& report);

}  // namespace triptych
