#include "benchmark/bench_report.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/cpu_info.h"
#include "report/machine.h"
#include "report/text_table.h"

namespace triptych {
namespace {

double operations(const Cost& cost) noexcept { return cost.flops + cost.int8_ops; }

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

double items_per_s(const BenchStage& stage) {
  return stage.ms > 0 ? static_cast<double>(stage.n_items) * 1000.0 / stage.ms : 0;
}

std::string rate_or_dash(double per_s, const char* unit) {
  return per_s > 0 ? format_count(per_s) + unit : "-";
}

std::string bound_by(const Cost& cost, const MachineLimits& limits) {
  Cost compute = cost;
  compute.bytes = 0;
  return roofline_seconds(compute, limits) >= roofline_seconds(cost, limits) ? "operations" : "memory";
}

const BenchStage* find_stage(const BenchReport& report, std::string_view name) {
  for (const BenchStage& stage : report.stages)
    if (stage.name == name) return &stage;
  return nullptr;
}

std::string parts_table(const BenchReport& report, const MachineLimits& limits) {
  TextTable table({{"stage", Align::kLeft},
                   {"part", Align::kLeft},
                   {"calls"},
                   {"time"},
                   {"of the stage"},
                   {"operations/s"},
                   {"bytes/s"},
                   {"of the limit"},
                   {"bound by", Align::kLeft}});
  for (const PartTiming& part : report.parts) {
    double stage_ms = 0;
    for (const PartTiming& other : report.parts)
      if (other.stage == part.stage) stage_ms += other.ms;
    const bool counted = operations(part.cost) > 0;
    table.add_row({part.stage, one_line(part.name), fmt::format("{:.0f}", part.count), format_ms(part.ms),
                   format_percent(stage_ms > 0 ? part.ms / stage_ms : 0),
                   rate_or_dash(ops_per_s(part.cost, part.ms), "OP/s"),
                   rate_or_dash(counted ? bytes_per_s(part.cost, part.ms) : 0, "B/s"),
                   counted ? format_percent(roofline_share(part.cost, limits, part.ms / 1000.0)) : "-",
                   counted ? bound_by(part.cost, limits) : "-"});
  }
  return table.render();
}

std::string memory_lines(const BenchReport& report) {
  std::string out;
  if (report.first_token_ms > 0)
    out += fmt::format("first token of that prompt after {}\n", format_ms(report.first_token_ms));
  if (report.question_first_token_ms > 0)
    out += fmt::format("picture and a short question, {} tokens: first token after {}\n",
                       report.n_question_tokens, format_ms(report.question_first_token_ms));
  out += fmt::format("peak memory {}, keys and values {}; weights of",
                     format_bytes(static_cast<double>(report.peak_memory_bytes)),
                     format_bytes(static_cast<double>(report.kv_cache_bytes)));
  for (std::size_t i = 0; i < report.weight_bytes.size(); ++i)
    out += fmt::format("{} {} {}", i == 0 ? "" : ",", report.weight_bytes[i].first,
                       format_bytes(static_cast<double>(report.weight_bytes[i].second)));
  return out + '\n';
}

// Counts are computed as floats, since they get large, and are whole.
std::int64_t whole(double count) { return std::llround(count); }

JsonOut stage_json(const BenchStage& stage, const MachineLimits& limits) {
  JsonOut out = {{"name", stage.name},
                 {"ms", stage.ms},
                 {"lowest_ms", stage.lowest_ms},
                 {"highest_ms", stage.highest_ms},
                 {"items", stage.n_items},
                 {"unit", stage.unit},
                 {"items_per_s", items_per_s(stage)}};
  if (operations(stage.cost) > 0) {
    out["flops"] = whole(stage.cost.flops);
    out["int8_ops"] = whole(stage.cost.int8_ops);
    out["bytes"] = whole(stage.cost.bytes);
    out["ops_per_s"] = ops_per_s(stage.cost, stage.ms);
    out["bytes_per_s"] = bytes_per_s(stage.cost, stage.ms);
    out["roofline_share"] = roofline_share(stage.cost, limits, stage.ms / 1000.0);
  }
  return out;
}

JsonOut run_json(const BenchRun& run, const MachineLimits& limits) {
  const BenchReport& report = run.report;
  JsonOut out = {{"model", run.model},
                 {"weights", run.weights},
                 {"version", build_info().version},
                 {"revision", build_info().revision},
                 {"date", today()},
                 {"prompt_tokens", report.n_prompt_tokens},
                 {"image_tokens", report.n_image_tokens},
                 {"first_token_ms", report.first_token_ms},
                 {"question_tokens", report.n_question_tokens},
                 {"question_first_token_ms", report.question_first_token_ms},
                 {"peak_memory_bytes", report.peak_memory_bytes},
                 {"kv_cache_bytes", report.kv_cache_bytes}};
  out["weight_bytes"] = JsonOut::object();
  for (const auto& [part, bytes] : report.weight_bytes) out["weight_bytes"][part] = bytes;
  out["stages"] = JsonOut::array();
  for (const BenchStage& stage : report.stages) out["stages"].push_back(stage_json(stage, limits));
  if (report.parts.empty()) return out;
  out["parts"] = JsonOut::array();
  for (const PartTiming& part : report.parts)
    out["parts"].push_back({{"stage", part.stage},
                            {"name", part.name},
                            {"calls", part.count},
                            {"ms", part.ms},
                            {"flops", whole(part.cost.flops)},
                            {"int8_ops", whole(part.cost.int8_ops)},
                            {"bytes", whole(part.cost.bytes)},
                            {"roofline_share", roofline_share(part.cost, limits, part.ms / 1000.0)}});
  return out;
}

// The rows of the table of limits: title, member, unit.
struct LimitRow {
  const char* title;
  const char* key;
  double MachineLimits::*rate;
  const char* unit;
};
constexpr LimitRow kLimitRows[] = {
    {"int8 products", "int8_ops_per_s", &MachineLimits::int8_ops_per_s, "OP/s"},
    {"bf16 multiply-adds", "bf16_flops_per_s", &MachineLimits::bf16_flops_per_s, "FLOP/s"},
    {"fp32 multiply-adds", "fp32_flops_per_s", &MachineLimits::fp32_flops_per_s, "FLOP/s"},
    {"read from memory", "read_bytes_per_s", &MachineLimits::read_bytes_per_s, "B/s"}};

}  // namespace

double ops_per_s(const Cost& cost, double ms) noexcept { return ms > 0 ? operations(cost) * 1000.0 / ms : 0; }
double bytes_per_s(const Cost& cost, double ms) noexcept { return ms > 0 ? cost.bytes * 1000.0 / ms : 0; }

LimitsReport measure_limits_report(int n_threads) {
  LimitsReport out;
  out.all = measure_limits(n_threads);
  out.one = out.all.median.n_threads == 1 ? out.all : measure_limits(1);
  out.tuning = measured_tuning(active_features());
  return out;
}

namespace {

bool has_tiles() { return !(active_features() & kTileFeatures).empty(); }

std::string tuning_text(const CpuTuning& tuning) {
  std::string out =
      fmt::format("chosen for this processor: bfloat16 products {}, int4 weights made 8-bit beyond {} rows",
                  tuning.bf16_gains ? "gain" : "do not gain", tuning.int4_streamed_rows);
  const std::int64_t group_bytes = has_tiles() ? tuning.tile_group_bytes : tuning.panel_group_bytes;
  out += has_tiles() ? fmt::format(", tiles from {} rows on", tuning.tile_rows) : ", no tiles";
  return out + fmt::format(", weights in blocks of {}\n", format_bytes(static_cast<double>(group_bytes)));
}

}  // namespace

std::string limits_table(const LimitsReport& limits) {
  const int n = limits.all.median.n_threads;
  std::string out = fmt::format(
      "{}, instruction set {}, last cache {}; medians (lowest to highest)\n", cpu_name(),
      to_string(active_isa()),
      last_cache_bytes() == 0 ? "unknown" : format_bytes(static_cast<double>(last_cache_bytes())));
  // Where there is one thread, one of the two says it all.
  std::vector<const MeasuredLimits*> shown = {&limits.one};
  if (n > 1) shown.push_back(&limits.all);
  std::vector<TextTable::Column> columns = {{"limit", Align::kLeft}};
  for (const MeasuredLimits* measured : shown) {
    const int n_threads = measured->median.n_threads;
    columns.push_back({fmt::format("{} thread{}", n_threads, n_threads == 1 ? "" : "s")});
    columns.push_back({"range", Align::kLeft});
  }
  TextTable table(std::move(columns));
  for (const LimitRow& row : kLimitRows) {
    std::vector<std::string> cells{row.title};
    for (const MeasuredLimits* measured : shown) {
      const double median = measured->median.*row.rate;
      cells.push_back(median > 0 ? format_count(median) + row.unit : "none");
      cells.push_back(median > 0 ? fmt::format("({} to {})", format_count(measured->lowest.*row.rate),
                                               format_count(measured->highest.*row.rate))
                                 : "");
    }
    table.add_row(std::move(cells));
  }
  return out + table.render() + tuning_text(limits.tuning);
}

JsonOut limits_report_json(const LimitsReport& limits) {
  JsonOut out = limits_json(limits.all.median);
  out["last_cache_bytes"] = last_cache_bytes();
  const auto range = [](const MeasuredLimits& measured) {
    JsonOut ranges = JsonOut::object();
    for (const LimitRow& row : kLimitRows)
      ranges[row.key] = {{"lowest", measured.lowest.*row.rate}, {"highest", measured.highest.*row.rate}};
    return ranges;
  };
  out["range"] = range(limits.all);
  JsonOut one = {{"threads", 1}};
  for (const LimitRow& row : kLimitRows) one[row.key] = limits.one.median.*row.rate;
  one["range"] = range(limits.one);
  out["one_thread"] = std::move(one);
  const CpuTuning& tuning = limits.tuning;
  out["tuning"] = {{"bf16_gains", tuning.bf16_gains},
                   {"int4_streamed_rows", tuning.int4_streamed_rows},
                   {"tiles", has_tiles()},
                   {"tile_rows", tuning.tile_rows},
                   {"panel_group_bytes", tuning.panel_group_bytes},
                   {"tile_group_bytes", tuning.tile_group_bytes}};
  return out;
}

std::string limits_line(const MachineLimits& limits) {
  std::string out = fmt::format("{}, {} thread{}, {}:", cpu_name(), limits.n_threads,
                                limits.n_threads == 1 ? "" : "s", to_string(active_isa()));
  const char* comma = "";
  for (const LimitRow& row : kLimitRows) {
    if (limits.*row.rate <= 0) continue;
    out += fmt::format("{} {}{} {}", comma, format_count(limits.*row.rate), row.unit, row.title);
    comma = ",";
  }
  return out + '\n';
}

JsonOut limits_json(const MachineLimits& limits) {
  JsonOut out = {
      {"threads", limits.n_threads}, {"instruction_set", to_string(active_isa())}, {"processor", cpu_name()}};
  for (const LimitRow& row : kLimitRows) out[row.key] = limits.*row.rate;
  return out;
}

std::string report_text(const BenchRun& run, const MachineLimits& limits) {
  const BenchReport& report = run.report;
  std::string out = fmt::format("{}; {} prompt tokens, {} of them from a picture\n", one_line(run.model),
                                report.n_prompt_tokens, report.n_image_tokens);
  out += limits_line(limits);
  TextTable table({{"stage", Align::kLeft},
                   {"time"},
                   {"rate"},
                   {"operations"},
                   {"bytes"},
                   {"operations/s"},
                   {"bytes/s"},
                   {"of the roofline"},
                   {"bound by", Align::kLeft}});
  for (const BenchStage& stage : report.stages) {
    const bool counted = operations(stage.cost) > 0;
    table.add_row(
        {stage.name, format_ms(stage.ms), fmt::format("{:.1f} {}/s", items_per_s(stage), stage.unit),
         counted ? format_count(operations(stage.cost)) : "-", counted ? format_bytes(stage.cost.bytes) : "-",
         counted ? format_count(ops_per_s(stage.cost, stage.ms)) + "OP/s" : "-",
         counted ? format_count(bytes_per_s(stage.cost, stage.ms)) + "B/s" : "-",
         counted ? format_percent(roofline_share(stage.cost, limits, stage.ms / 1000.0)) : "-",
         counted ? bound_by(stage.cost, limits) : "-"});
  }
  out += table.render() + memory_lines(report);
  if (!report.parts.empty()) out += "\nParts, of one pass:\n" + parts_table(report, limits);
  return out;
}

std::string sweep_text(const std::vector<BenchRun>& runs, const MachineLimits& limits) {
  std::string out;
  if (runs.empty()) return out;
  // Stages with a roofline, as the first run has them; all runs have the same.
  std::vector<TextTable::Column> columns{{"weights", Align::kLeft}};
  std::vector<std::string> stages;
  for (const BenchStage& stage : runs.front().report.stages)
    if (operations(stage.cost) > 0) stages.push_back(stage.name);
  for (const std::string& name : stages) {
    columns.push_back({name});
    columns.push_back({"of roofline"});
  }
  columns.push_back({"question, first token"});
  columns.push_back({"peak memory"});
  TextTable table(std::move(columns));
  for (const BenchRun& run : runs) {
    std::vector<std::string> cells{one_line(run.weights)};
    for (const std::string& name : stages) {
      const BenchStage* stage = find_stage(run.report, name);
      if (stage == nullptr) {
        cells.insert(cells.end(), 2, "-");
        continue;
      }
      const bool rate = stage->unit == "tokens" && (name == "prefill" || name.starts_with("decode"));
      cells.push_back(rate ? fmt::format("{:.1f} tokens/s", items_per_s(*stage)) : format_ms(stage->ms));
      cells.push_back(format_percent(roofline_share(stage->cost, limits, stage->ms / 1000.0)));
    }
    const double first_ms = run.report.question_first_token_ms;
    cells.push_back(first_ms > 0 ? format_ms(first_ms) : "-");
    cells.push_back(format_bytes(static_cast<double>(run.report.peak_memory_bytes)));
    table.add_row(std::move(cells));
  }
  const BenchReport& first = runs.front().report;
  return fmt::format("{}; {} prompt tokens, {} of them from a picture\n", one_line(runs.front().model),
                     first.n_prompt_tokens, first.n_image_tokens) +
         limits_line(limits) + table.render();
}

JsonOut bench_json(const std::vector<BenchRun>& runs, const MachineLimits& limits) {
  JsonOut out;
  if (runs.size() == 1) {
    out = run_json(runs.front(), limits);
  } else {
    out["runs"] = JsonOut::array();
    for (const BenchRun& run : runs) out["runs"].push_back(run_json(run, limits));
  }
  out["limits"] = limits_json(limits);
  return out;
}

}  // namespace triptych
