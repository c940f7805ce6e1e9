// A run of a trace as one HTML file that needs nothing else: which thread did what, batches, cache and
// waiting over time, how long requests took, and the roofline of the model's parts.
#pragma once

#include <string>

#include "benchmark/bench.h"
#include "benchmark/serve_report.h"
#include "report/cost_model.h"

namespace triptych {

/// Well-formed as XML, too. `parts` is a run of the stages alone (BenchReport::parts; empty: no roofline).
std::string serve_html(const ServeReport& report, const BenchReport& parts, const MachineLimits& limits);

/// Charts of how first tokens, ends, gaps and stages of requests are distributed.
std::string serve_distributions_html(const ServeRun& run);

}  // namespace triptych
