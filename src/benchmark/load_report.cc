#include "benchmark/load_report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "benchmark/serve_html.h"
#include "report/html_page.h"
#include "report/html_text.h"
#include "report/line_chart.h"
#include "report/text_table.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxMessages = 10;
constexpr std::size_t kMaxSteps = 1000;  // of a chart

// (time in ms, +1 or -1) of each request's arrival and end, in order; ends before arrivals of one moment.
std::vector<std::pair<double, int>> changes_of(const LoadRun& run) {
  std::vector<std::pair<double, int>> out;
  for (const ServedRequest& r : run.run.requests) {
    out.emplace_back(r.arrival_ms, 1);
    out.emplace_back(r.arrival_ms + r.timings.total_ms, -1);
  }
  std::sort(out.begin(), out.end());
  return out;
}

void add_in_flight(const LoadRun& run, LoadSummary& out) {
  std::int64_t n = 0, most = 0;
  double sum = 0, before_ms = 0;
  for (const auto& [ms, change] : changes_of(run)) {
    sum += static_cast<double>(n) * (ms - before_ms);
    before_ms = ms;
    n += change;
    most = std::max(most, n);
  }
  out.most_in_flight = static_cast<std::size_t>(most);
  if (before_ms > 0) out.mean_in_flight = sum / before_ms;
}

std::string status_text(int status) { return status == 0 ? "none" : std::to_string(status); }

std::vector<std::pair<std::string, std::string>> facts_of(const LoadReport& report, const LoadSummary& s) {
  std::string statuses;
  for (const auto& [status, n] : s.statuses)
    statuses += fmt::format("{}{}: {}", statuses.empty() ? "" : ", ", status_text(status), n);
  const ServeRun& run = report.run.run;
  const double cpu_share = run.wall_ms > 0 ? run.cpu_ms / run.wall_ms : 0;
  return {
      {"requests", fmt::format("{} answered, {} failed in {}: {:.3f} requests/s", s.served.n_answered,
                               s.served.n_failed, format_ms(run.wall_ms), s.served.requests_per_s)},
      {"statuses", statuses},
      {"tokens of prompts",
       fmt::format("{}, {} of them of pictures: {:.1f} tokens/s", s.served.n_prompt_tokens,
                   s.served.n_image_tokens, s.served.prompt_tokens_per_s)},
      {"tokens of answers",
       fmt::format("{}: {:.1f} tokens/s", s.served.n_answer_tokens, s.served.answer_tokens_per_s)},
      {"requests at once", fmt::format("{:.2f} on average, {} at most", s.mean_in_flight, s.most_in_flight)},
      {"connections", fmt::format("{} made", report.run.n_connects)},
      {"this side", fmt::format("{} of a processor", format_percent(cpu_share))}};
}

// Stages that the server does not say are left out.
std::vector<std::pair<std::string, Percentiles>> shown_latencies(const LoadSummary& s) {
  std::vector<std::pair<std::string, Percentiles>> out;
  for (const auto& [key, p] : s.served.latencies)
    if (p.highest > 0) out.emplace_back(key, p);
  if (s.refusal_ms.n > 0) out.emplace_back("refusal", s.refusal_ms);
  return out;
}

std::string title_of(const std::string& key) { return key == "refusal" ? "refusal" : latency_title(key); }

std::vector<std::string> cells_of(const std::string& key, const Percentiles& p) {
  return {title_of(key),    format_ms(p.mean), format_ms(p.p50),
          format_ms(p.p90), format_ms(p.p99),  format_ms(p.highest)};
}

// Requests in flight over time, as steps; of a long run some of them.
ChartSeries in_flight(const LoadRun& run) {
  ChartSeries out{"requests", {}};
  const auto changes = changes_of(run);
  const std::size_t stride = changes.size() / kMaxSteps + 1;
  double n = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const auto& [ms, change] = changes[i];
    if (i % stride == 0) out.points.emplace_back(ms / 1e3, n);
    n += change;
    if (i % stride == 0) out.points.emplace_back(ms / 1e3, n);
  }
  return out;
}

}  // namespace

LoadSummary summarize(const LoadRun& run) {
  LoadSummary out;
  out.served = summarize(run.run);
  std::vector<double> refusals;
  for (std::size_t i = 0; i < run.run.requests.size(); ++i) {
    const ServedRequest& r = run.run.requests[i];
    ++out.statuses[run.statuses[i]];
    if (!r.error) continue;
    ++out.errors[r.error->message];
    if (run.statuses[i] != 0 && run.statuses[i] != 200) refusals.push_back(r.timings.total_ms);
  }
  out.refusal_ms = percentiles_of(std::move(refusals));
  add_in_flight(run, out);
  return out;
}

std::string load_text(const LoadReport& report) {
  const LoadSummary s = summarize(report.run);
  std::string out =
      fmt::format("{}; {}; {}\n", one_line(report.url), one_line(report.model), one_line(report.load));
  for (const auto& [name, value] : facts_of(report, s)) out += fmt::format("  {:<24}{}\n", name, value);
  TextTable table({{"time", Align::kLeft}, {"mean"}, {"p50"}, {"p90"}, {"p99"}, {"longest"}});
  for (const auto& [key, p] : shown_latencies(s)) table.add_row(cells_of(key, p));
  out += '\n' + table.render(2);
  std::size_t n_shown = 0;
  for (const auto& [message, n] : s.errors) {
    if (n_shown++ == kMaxMessages) break;
    out += fmt::format("{}  {} failed: {}\n", n_shown == 1 ? "\n" : "", n, one_line(message));
  }
  return out;
}

JsonOut load_json(const LoadReport& report) {
  const LoadSummary s = summarize(report.run);
  const ServeRun& run = report.run.run;
  JsonOut latencies = JsonOut::object();
  for (const auto& [key, p] : shown_latencies(s))
    latencies[key + "_ms"] = {
        {"mean", p.mean}, {"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}, {"highest", p.highest}};
  JsonOut statuses = JsonOut::object();
  for (const auto& [status, n] : s.statuses) statuses[status_text(status)] = n;
  JsonOut errors = JsonOut::array();
  for (const auto& [message, n] : s.errors) {
    if (errors.size() == kMaxMessages) break;
    errors.push_back({{"message", message}, {"requests", n}});
  }
  return {
      {"url", report.url},
      {"model", report.model},
      {"load", report.load},
      {"clients", report.n_clients},
      {"requests", {{"answered", s.served.n_answered}, {"failed", s.served.n_failed}, {"errors", errors}}},
      {"statuses", statuses},
      {"wall_ms", run.wall_ms},
      {"cpu_ms", run.cpu_ms},
      {"requests_per_s", s.served.requests_per_s},
      {"prompt_tokens", s.served.n_prompt_tokens},
      {"image_tokens", s.served.n_image_tokens},
      {"answer_tokens", s.served.n_answer_tokens},
      {"prompt_tokens_per_s", s.served.prompt_tokens_per_s},
      {"answer_tokens_per_s", s.served.answer_tokens_per_s},
      {"latencies", latencies},
      {"mean_in_flight", s.mean_in_flight},
      {"most_in_flight", s.most_in_flight},
      {"connections", report.run.n_connects}};
}

std::string load_html(const LoadReport& report) {
  const LoadSummary s = summarize(report.run);
  std::vector<std::vector<std::string>> facts, latencies, errors;
  for (const auto& [name, value] : facts_of(report, s)) facts.push_back({name, value});
  for (const auto& [key, p] : shown_latencies(s)) latencies.push_back(cells_of(key, p));
  for (const auto& [message, n] : s.errors) {
    if (errors.size() == kMaxMessages) break;
    errors.push_back({std::to_string(n), message});
  }
  std::string out = fmt::format("<h1>{}</h1>\n<p>{}; {}<br/>triptych {} ({})</p>\n", html_escape(report.url),
                                html_escape(report.model), html_escape(report.load),
                                html_escape(build_info().version), html_escape(build_info().revision));
  out += html_table({{"", true}, {"", true}}, facts);
  if (!errors.empty()) out += "<h2>Failures</h2>\n" + html_table({{"requests"}, {"message", true}}, errors);
  out += "<h2>Times</h2>\n" +
         html_table({{"time", true}, {"mean"}, {"p50"}, {"p90"}, {"p99"}, {"longest"}}, latencies);
  out +=
      "<h2>Over time</h2>\n" + line_chart_html({.title = "Requests at once",
                                                .series = {in_flight(report.run)},
                                                .is_filled = true,
                                                .x_text = [](double x) { return fmt::format("{:g} s", x); }});
  out += "<h2>Distributions</h2>\n" + serve_distributions_html(report.run.run);
  return html_page("triptych bench: " + report.url, out);
}

}  // namespace triptych
