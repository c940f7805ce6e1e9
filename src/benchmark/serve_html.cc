#include "benchmark/serve_html.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/build_info.h"
#include "benchmark/bench_html.h"
#include "benchmark/bench_report.h"
#include "report/heat_map.h"
#include "report/html_page.h"
#include "report/html_text.h"
#include "report/line_chart.h"
#include "report/text_table.h"

namespace triptych {
namespace {

constexpr int kTimePoints = 240;

std::string seconds_text(double s) { return fmt::format("{:g} s", s); }
std::string duration_text(double ms) {
  if (ms >= 1000) return fmt::format("{:g} s", ms / 1000);
  return ms >= 1 ? fmt::format("{:g} ms", ms) : fmt::format("{:g} us", ms * 1000);
}
std::string percent_text(double share) { return fmt::format("{:.0f} %", 100 * share); }

// "engine" first, then its workers, then what prepares requests.
std::string row_label(const std::string& thread_name, const std::set<std::string>& zones) {
  const bool runs_steps = zones.contains("decode") || zones.contains("prefill") || zones.contains("vision");
  const std::size_t dash = thread_name.rfind('-');
  const bool is_pool = thread_name.starts_with("triptych-") && dash != std::string::npos;
  if (is_pool) return (runs_steps ? "engine " : "resize ") + thread_name.substr(dash + 1);
  return runs_steps ? "engine 0" : "prepare";
}

// Means over time of a value of steps, in equal stretches of the run; stretches without a step are 0.
template <typename Value>
ChartSeries over_time(const ServeRun& run, std::string name, const Value& value) {
  ChartSeries out{std::move(name), {}};
  std::vector<double> sums(kTimePoints), weights(kTimePoints);
  const double width_ms = std::max(run.wall_ms, 1e-6) / kTimePoints;
  for (const ServedStep& step : run.steps) {
    const double end_ms = step.start_ms + step.ms;
    for (int i = std::clamp(static_cast<int>(step.start_ms / width_ms), 0, kTimePoints - 1);
         i < kTimePoints && i * width_ms < end_ms; ++i) {
      const double ms = std::min(end_ms, (i + 1) * width_ms) - std::max(step.start_ms, i * width_ms);
      if (ms <= 0) continue;
      sums[static_cast<std::size_t>(i)] += ms * value(step);
      weights[static_cast<std::size_t>(i)] += ms;
    }
  }
  for (int i = 0; i < kTimePoints; ++i) {
    const auto at = static_cast<std::size_t>(i);
    out.points.emplace_back((i + 0.5) * width_ms / 1e3, weights[at] > 0 ? sums[at] / weights[at] : 0.0);
  }
  return out;
}

double as_double(std::int64_t n) { return static_cast<double>(n); }

std::string time_charts(const ServeRun& run) {
  std::string out = line_chart_html(
      {.title = "Sequences",
       .series = {over_time(run, "in the batch",
                            [](const ServedStep& s) { return as_double(s.stats.n_sequences); }),
                  over_time(run, "running", [](const ServedStep& s) { return as_double(s.stats.n_running); }),
                  over_time(run, "waiting",
                            [](const ServedStep& s) { return as_double(s.stats.n_waiting); })},
       .x_text = seconds_text});
  out += line_chart_html(
      {.title = "Prompt tokens of a step",
       .series = {over_time(run, "tokens",
                            [](const ServedStep& s) { return as_double(s.stats.n_prompt_rows); })},
       .is_filled = true,
       .x_text = seconds_text});
  return out + line_chart_html({.title = "Cache blocks in use",
                                .series = {over_time(run, "blocks",
                                                     [](const ServedStep& s) {
                                                       return as_double(s.stats.n_used_blocks) /
                                                              std::max(1.0, as_double(s.stats.n_blocks));
                                                     })},
                                .is_filled = true,
                                .y_high = 1,
                                .x_text = seconds_text,
                                .y_text = percent_text});
}

ChartSeries distribution(const ServeRun& run, const char* name, double GenerationTimings::*time) {
  std::vector<double> values;
  for (const ServedRequest& r : run.requests)
    if (!r.error && r.timings.*time > 0) values.push_back(r.timings.*time);
  return cumulative(name, std::move(values));
}

std::string summary_html(const ServeReport& report) {
  std::vector<std::vector<std::string>> facts;
  for (const auto& [name, value] : serve_facts(report)) facts.push_back({name, value});
  std::vector<std::vector<std::string>> latencies;
  for (const auto& [key, p] : summarize(report.run).latencies)
    latencies.push_back({latency_title(key), format_ms(p.mean), format_ms(p.p50), format_ms(p.p90),
                         format_ms(p.p99), format_ms(p.highest)});
  return html_table({{"", true}, {"", true}}, facts) + "<h2>Times</h2>\n" +
         html_table({{"time", true}, {"mean"}, {"p50"}, {"p90"}, {"p99"}, {"longest"}}, latencies);
}

}  // namespace

std::string serve_distributions_html(const ServeRun& run) {
  std::vector<double> gaps;
  for (const ServedRequest& r : run.requests) gaps.insert(gaps.end(), r.gaps_ms.begin(), r.gaps_ms.end());
  std::string out =
      line_chart_html({.title = "Requests: share that took no longer",
                       .series = {distribution(run, "first token", &GenerationTimings::first_token_ms),
                                  distribution(run, "end to end", &GenerationTimings::total_ms),
                                  distribution(run, "waiting", &GenerationTimings::queue_ms)},
                       .x_is_log = true,
                       .y_high = 1,
                       .x_text = duration_text,
                       .y_text = percent_text});
  out += line_chart_html({.title = "Time between tokens: share that was no longer",
                          .series = {cumulative("between tokens", std::move(gaps))},
                          .x_is_log = true,
                          .is_filled = true,
                          .y_high = 1,
                          .x_text = duration_text,
                          .y_text = percent_text});
  return out +
         line_chart_html({.title = "Stages of requests: share that took no longer",
                          .series = {distribution(run, "image decode", &GenerationTimings::image_decode_ms),
                                     distribution(run, "preprocess", &GenerationTimings::preprocess_ms),
                                     distribution(run, "tower", &GenerationTimings::encode_ms),
                                     distribution(run, "prefill", &GenerationTimings::prefill_ms),
                                     distribution(run, "decode", &GenerationTimings::decode_ms),
                                     distribution(run, "detokenize", &GenerationTimings::detokenize_ms)},
                          .x_is_log = true,
                          .y_high = 1,
                          .x_text = duration_text,
                          .y_text = percent_text});
}

std::string serve_html(const ServeReport& report, const BenchReport& parts, const MachineLimits& limits) {
  const ServeRun& run = report.run;
  std::string out = fmt::format("<h1>{}</h1>\n<p>weights {}; {}<br/>{}<br/>triptych {} ({})</p>\n",
                                html_escape(report.model), html_escape(report.weights),
                                html_escape(report.load), html_escape(limits_line(limits)),
                                html_escape(build_info().version), html_escape(build_info().revision));
  out += summary_html(report);
  out +=
      "<h2>Threads over time</h2>\n<p class=\"note\">Colour: what took most of a moment. Strength: how much "
      "of it "
      "the thread worked. Engine 0 runs the steps and takes part in its loops; a thread that waits or looks "
      "for "
      "work is not busy. Work is wall time: what other programs take of a processor meanwhile counts.</p>\n";
  const auto wall_ns = static_cast<std::int64_t>(run.wall_ms * 1e6);
  out += heat_maps_html(make_busy_map(run.busy, wall_ns, kTimePoints, row_label));
  out += "<h2>Over time</h2>\n" + time_charts(run);
  out += "<h2>Distributions</h2>\n" + serve_distributions_html(run);
  if (!parts.parts.empty())
    out += fmt::format(
        "<section>\n<p class=\"note\">The roofline is of one request alone: {} prompt tokens, {} of "
        "them from a picture.</p>\n{}</section>\n",
        parts.n_prompt_tokens, parts.n_image_tokens, parts_html(parts, limits));
  return html_page("triptych bench: " + report.model, out);
}

}  // namespace triptych
