// What a benchmark found, as tables for people and as JSON that --compare reads.
#pragma once

#include <string>
#include <vector>

#include "benchmark/bench.h"
#include "report/json_text.h"
#include "report/machine.h"

namespace triptych {

/// One run: a model in one format of its weights.
struct BenchRun {
  std::string model;    // a directory or "llava-1.5-7b, random fp16 weights"
  std::string weights;  // as --weights was given, or a converted directory holds them
  BenchReport report;
};

/// The limits of one thread and of all threads in use (the same when there is one), and what the CPU backend
/// makes of the processor.
struct LimitsReport {
  MeasuredLimits one, all;
  CpuTuning tuning;
};
LimitsReport measure_limits_report(int n_threads);
std::string limits_table(const LimitsReport& limits);
JsonOut limits_report_json(const LimitsReport& limits);

/// One line: processor, threads and what they could do.
std::string limits_line(const MachineLimits& limits);
JsonOut limits_json(const MachineLimits& limits);

/// Stages of one run with rates and shares of the roofline; memory; parts where they were timed.
std::string report_text(const BenchRun& run, const MachineLimits& limits);
/// Runs in several formats: one row each.
std::string sweep_text(const std::vector<BenchRun>& runs, const MachineLimits& limits);

/// One run: an object with its stages. Several: {"runs": [...]}. With the limits in either.
JsonOut bench_json(const std::vector<BenchRun>& runs, const MachineLimits& limits);

/// Operations a second, bytes a second; 0 where nothing was counted.
double ops_per_s(const Cost& cost, double ms) noexcept;
double bytes_per_s(const Cost& cost, double ms) noexcept;

}  // namespace triptych
