// A benchmark as one HTML file that needs nothing else: stages, roofline, parts, and which thread did what.
#pragma once

#include <string>
#include <vector>

#include "benchmark/bench_report.h"

namespace triptych {

/// The roofline of a run's parts with their table.
std::string parts_html(const BenchReport& report, const MachineLimits& limits);

/// Well-formed as XML, too. Runs without parts or timeline have tables only.
std::string bench_html(const std::vector<BenchRun>& runs, const MachineLimits& limits);

}  // namespace triptych
