#include "benchmark/bench_html.h"

#include <algorithm>

#include "base/build_info.h"
#include "report/heat_map.h"
#include "report/html_page.h"
#include "report/html_text.h"
#include "report/roofline_chart.h"
#include "report/text_table.h"

namespace triptych {
namespace {

std::string stages_html(const BenchReport& report, const MachineLimits& limits) {
  std::vector<std::vector<std::string>> rows;
  for (const BenchStage& stage : report.stages) {
    const bool counted = stage.cost.flops + stage.cost.int8_ops > 0;
    rows.push_back(
        {stage.name, format_ms(stage.ms),
         fmt::format("{:.1f} {}/s", static_cast<double>(stage.n_items) * 1000.0 / stage.ms, stage.unit),
         counted ? format_count(ops_per_s(stage.cost, stage.ms)) + "OP/s" : "",
         counted ? format_count(bytes_per_s(stage.cost, stage.ms)) + "B/s" : "",
         counted ? format_percent(roofline_share(stage.cost, limits, stage.ms / 1000.0)) : ""});
  }
  std::string out =
      html_table({{"stage", true}, {"time"}, {"rate"}, {"operations"}, {"bytes"}, {"of the roofline"}}, rows);
  out += "<p>";
  if (report.question_first_token_ms > 0)
    out += fmt::format("Picture and a short question ({} tokens): first token after {}. ",
                       report.n_question_tokens, format_ms(report.question_first_token_ms));
  return out + fmt::format("Peak memory {}, of it keys and values {}.</p>\n",
                           format_bytes(static_cast<double>(report.peak_memory_bytes)),
                           format_bytes(static_cast<double>(report.kv_cache_bytes)));
}

std::string timeline_html(const BenchReport& report, int n_threads) {
  std::vector<std::string> operations;
  for (const PartTiming& part : report.parts) operations.push_back(part.name);
  // The file stays small on machines with many threads.
  const int n_bins = std::clamp(8000 / std::max(1, n_threads), 40, 240);
  return "<h2>Threads over time</h2>\n<p>Colour: the part that took most of a moment. Strength: how much of "
         "the moment the "
         "thread was busy. Thread 0 runs the step and takes part in its loops.</p>\n" +
         heat_maps_html(make_heat_maps(report.timeline, operations, n_threads, n_bins));
}

}  // namespace

std::string parts_html(const BenchReport& report, const MachineLimits& limits) {
  const std::vector<RooflinePoint> points = roofline_points(report.parts);
  std::string out = "<h2>Roofline</h2>\n" + roofline_svg(points, limits) + "<p class=\"legend\">";
  for (const char* stage : {"tower", "projector", "prefill", "decode"})
    out += fmt::format("<span><i style=\"background:{}\"></i>{}</span>", stage_color(stage), stage);
  out +=
      "</p>\n<p>Operands are counted once: weights, inputs and outputs in memory, cached keys and values. A "
      "dot above the "
      "slope works on operands that lie in a cache.</p>\n<h2>Parts</h2>\n";
  std::vector<std::vector<std::string>> rows;
  std::size_t next = 0;
  for (const PartTiming& part : report.parts) {
    const bool counted = next < points.size() && points[next].part == &part;
    rows.push_back({counted ? fmt::format("{}", points[next].number) : "", part.stage, part.name,
                    fmt::format("{:.0f}", part.count), format_ms(part.ms),
                    counted ? fmt::format("{:.1f}", points[next].ops_per_byte) : "",
                    counted ? format_count(points[next].ops_per_s) + "OP/s" : "",
                    counted ? format_count(bytes_per_s(part.cost, part.ms)) + "B/s" : "",
                    counted ? format_percent(roofline_share(part.cost, limits, part.ms / 1000.0)) : ""});
    if (counted) ++next;
  }
  return out + html_table({{"point"},
                           {"stage", true},
                           {"part", true},
                           {"calls"},
                           {"time of a pass"},
                           {"operations per byte"},
                           {"operations"},
                           {"bytes"},
                           {"of the limit"}},
                          rows);
}

std::string bench_html(const std::vector<BenchRun>& runs, const MachineLimits& limits) {
  std::string out = fmt::format("<h1>triptych bench</h1>\n<p>{}<br/>triptych {} ({})</p>\n",
                                html_escape(limits_line(limits)), html_escape(build_info().version),
                                html_escape(build_info().revision));
  for (const BenchRun& run : runs) {
    out += fmt::format("<section>\n<h2>{}; weights {}; {} prompt tokens, {} of them from a picture</h2>\n",
                       html_escape(run.model), html_escape(run.weights), run.report.n_prompt_tokens,
                       run.report.n_image_tokens);
    out += stages_html(run.report, limits);
    if (!run.report.parts.empty()) out += parts_html(run.report, limits);
    if (!run.report.timeline.empty()) out += timeline_html(run.report, limits.n_threads);
    out += "</section>\n";
  }
  return html_page("triptych bench", out);
}

}  // namespace triptych
