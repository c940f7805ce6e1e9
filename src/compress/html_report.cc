#include "compress/html_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/build_info.h"
#include "report/html_text.h"
#include "report/line_chart.h"
#include "report/text_table.h"

namespace triptych::compress {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --text: #212529; --back: #fff; --line: #dee2e6; --dim: #5c6370; --before: #b9c2cc; --after: #2b6cb0; --good: #2f7d4f; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8ea; --back: #17191c; --line: #3a3f45; --dim: #a3a9af; --before: #5d6670; --after: #7fb2e8; --good: #7fd0a0; --bad: #ff9a8d; } }
@media print { :root { --text: #000; --back: #fff; } h2 { break-after: avoid; } tr, svg { break-inside: avoid; } }
body { font: 14px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } .dim { color: var(--dim); }
table { border-collapse: collapse; } td, th { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; } .left { text-align: left; } svg { display: block; max-width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--text); } .before { fill: var(--before); } .after { fill: var(--after); }
.grid { stroke: var(--line); } .passed { color: var(--good); } .failed { color: var(--bad); font-weight: 600; }
.legend span { display: inline-block; margin-right: 1.2rem; } .legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; }
)";

// -10 log10 of a share of the energy, what bars are as long as; an exact linear is as good as the best shown.
double decibel(double share) { return share > 1e-12 ? std::min(-10 * std::log10(share), 90.0) : 90.0; }

std::string table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<table><thead><tr>";
  for (std::size_t i = 0; i < head.size(); ++i)
    out += fmt::format("<th{}>{}</th>", i == 0 ? " class=\"left\"" : "", html_escape(head[i]));
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i)
      out += fmt::format("<td{}>{}</td>", i == 0 ? " class=\"left\"" : "", html_escape(row[i]));
    out += "</tr>\n";
  }
  return out + "</tbody></table>\n";
}

// Bytes of each part's linears in 16 bits and as they are now, part after part.
std::string memory_svg(const CompressReport& report) {
  std::vector<std::string> order;
  std::map<std::string, std::pair<double, double>> bytes;
  for (const LinearReport& linear : report.linears) {
    if (!bytes.contains(linear.part)) order.push_back(linear.part);
    auto& [before, after] = bytes[linear.part];
    before += 2.0 * static_cast<double>(linear.n_weights);
    after += linear.bits_per_weight / 8 * static_cast<double>(linear.n_weights);
  }
  double total = 0;
  for (const auto& [part, pair] : bytes) total += pair.first;
  constexpr double kLeft = 110, kWidth = 600, kRow = 34;
  const double height = kRow * static_cast<double>(order.size() + 1) + 10;
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 860 {0}\" width=\"860\" height=\"{0}\" role=\"img\" aria-label=\"Bytes of each "
      "part\">\n",
      height);
  double at = 0, y = 5, sum_after = 0;
  const auto bar = [&](double left, double before, double after, const std::string& name) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 8, y + 17,
                       html_escape(name));
    out += fmt::format("<rect class=\"before\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"22\"/>",
                       kLeft + left / total * kWidth, y, std::max(before / total * kWidth, 1.0));
    out += fmt::format("<rect class=\"after\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"22\"/>",
                       kLeft + left / total * kWidth, y, std::max(after / total * kWidth, 1.0));
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{} to {}</text>\n", kLeft + kWidth + 8, y + 15,
                       format_bytes(before), format_bytes(after));
    y += kRow;
  };
  for (const std::string& part : order) {
    const auto& [before, after] = bytes[part];
    bar(at, before, after, part);
    at += before;
    sum_after += after;
  }
  bar(0, total, sum_after, "all");
  return out + "</svg>\n";
}

std::string linears_svg(const CompressReport& report) {
  double longest = 10;
  for (const LinearReport& linear : report.linears)
    longest = std::max({longest, decibel(linear.error), decibel(linear.error_nearest)});
  constexpr double kLeft = 380, kWidth = 380, kRow = 20;
  const double height = kRow * static_cast<double>(report.linears.size()) + 30;
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 860 {0}\" width=\"860\" height=\"{0}\" role=\"img\" aria-label=\"Signal to noise "
      "of each linear\">\n",
      height);
  for (int db = 0; db <= static_cast<int>(longest); db += 10) {
    const double x = kLeft + db / longest * kWidth;
    out += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"16\" y2=\"{1:.1f}\"/>", x,
                       height);
    out += fmt::format("<text x=\"{:.1f}\" y=\"11\" text-anchor=\"middle\">{} dB</text>\n", x, db);
  }
  double y = 20;
  for (const LinearReport& linear : report.linears) {
    out += fmt::format("<g><title>{}: {}, {} weights</title>", html_escape(linear.name), linear.format,
                       linear.n_weights);
    const std::string shown =
        linear.name.size() > 56 ? "..." + linear.name.substr(linear.name.size() - 53) : linear.name;
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 6, y + 12,
                       html_escape(shown));
    out += fmt::format("<rect class=\"before\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"6\"/>",
                       kLeft, y + 1, decibel(linear.error_nearest) / longest * kWidth);
    out +=
        fmt::format("<rect class=\"after\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"8\"/></g>\n",
                    kLeft, y + 7, decibel(linear.error) / longest * kWidth);
    y += kRow;
  }
  return out + "</svg>\n";
}

std::string quality_html(const HtmlReportInput& in) {
  std::string out;
  if (in.loss != nullptr) {
    const EvalScore& before = in.loss->before;
    const EvalScore& after = in.loss->after;
    out += fmt::format("<p>{} questions of {}, answered greedily; the original in float32.</p>\n", after.n,
                       html_escape(in.eval));
    out +=
        table({"", "original", "compressed"},
              {{"exact match", format_percent(before.accuracy(), 2), format_percent(after.accuracy(), 2)},
               {"the same with blank pictures", "", format_percent(after.control_accuracy(), 2)},
               {"mean log p of the right answers", fmt::format("{:.4f}", before.mean_logprob()),
                fmt::format("{:.4f}", after.mean_logprob())},
               {"divergence of answers, mean (nats)", "0", fmt::format("{:.2e}", after.mean_kl_divergence())},
               {"largest at one token", "0", fmt::format("{:.2e}", after.max_kl_divergence)},
               {"same most likely token", "", format_percent(after.same_top(), 2)}});
  } else {
    out += "<p class=\"dim\">Nothing was evaluated (--eval).</p>\n";
  }
  for (const GateResult& gate : in.gate)
    out += fmt::format("<p>Gate <code>{}</code>: {:.4g}, <span class=\"{}\">{}</span></p>\n",
                       html_escape(gate.condition), gate.value, gate.passed ? "passed" : "failed",
                       gate.passed ? "passed" : "failed");
  return out;
}

}  // namespace

std::string html_report(const HtmlReportInput& in) {
  const CompressReport& report = in.report;
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>triptych compress: "
      "{0}</title>\n<style>{1}</style></head>\n"
      "<body>\n<h1>{0}</h1>\n",
      html_escape(in.model), kStyle);
  out += fmt::format("<p>{} of weights became {} in {}: {} linears at {:.2f} bits a weight. {:.1f} s.</p>\n",
                     format_bytes(static_cast<double>(report.written.source_bytes)),
                     format_bytes(static_cast<double>(report.written.written_bytes)), html_escape(in.out),
                     report.linears.size(), report.bits_per_weight(), report.seconds);
  out += "<h2>What it cost</h2>\n" + quality_html(in);
  out +=
      "<h2>Memory of the linears</h2>\n<p class=\"legend\"><span><i "
      "style=\"background:var(--before)\"></i>in 16 bits</span>"
      "<span><i style=\"background:var(--after)\"></i>compressed</span></p>\n" +
      memory_svg(report);
  out +=
      "<h2>Each linear's outputs on the calibration data</h2>\n<p class=\"legend\"><span><i "
      "style=\"background:var(--before)\"></i>"
      "rounded to nearest</span><span><i style=\"background:var(--after)\"></i>compressed</span> signal to "
      "noise, longer is "
      "better</p>\n" +
      linears_svg(report);
  if (report.front.size() > 1) {
    LineChart chart{.title = "Divergence that the sensitivities promise, by bits a weight",
                    .series = {{.name = "chosen within each size", .points = {}}}};
    for (const FrontPoint& point : report.front)
      chart.series.front().points.emplace_back(point.bits, point.divergence);
    out += "<h2>Size against loss</h2>\n" + line_chart_html(chart);
    std::vector<std::vector<std::string>> trials;
    for (const LossTrial& trial : report.trials)
      trials.push_back({fmt::format("{:.2f}", trial.bits), fmt::format("{:.2f}", trial.points_lost)});
    if (!trials.empty())
      out += table({"bits a weight, tried", "points lost on the calibration's answers"}, trials);
  }
  std::vector<std::vector<std::string>> folds;
  for (const FoldReport& f : report.folds)
    folds.push_back({f.name, fmt::format("{:.1f}", f.alpha), fmt::format("{:.3g}", f.error_before),
                     fmt::format("{:.3g}", f.error_after)});
  if (!folds.empty())
    out += "<h2>Residual of the tower folded in</h2>\n" +
           table({"projector", "alpha", "squared error before", "after, on pictures held out"}, folds);
  std::vector<std::vector<std::string>> rows;
  for (const EqualizationReport& e : report.equalizations)
    rows.push_back({e.reader, fmt::format("{:.1f}", e.activation_power),
                    fmt::format("{:.1f}", e.weight_power), format_percent(e.gain, 1)});
  if (!rows.empty())
    out += "<h2>Equalized channels</h2>\n" +
           table({"read by", "inputs' exponent", "weights' exponent", "estimated error left"}, rows);
  out += fmt::format(
      "<h2>Calibration</h2>\n<p>{} conversations of {}, {} image tokens and {} text tokens; fingerprint "
      "<code>{}</code>.</p>\n",
      report.n_samples, html_escape(in.data), report.n_image_tokens, report.n_text_tokens,
      report.data_fingerprint.substr(0, 16));
  out += "<h2>Recipe</h2>\n<pre>" + html_escape(report.recipe) + "</pre>\n";
  const auto list = [&](const char* title, const std::vector<std::string>& names) {
    if (names.empty()) return;
    out += fmt::format("<h2>{}</h2>\n<p>", title);
    for (std::size_t i = 0; i < names.size(); ++i) out += (i > 0 ? ", " : "") + html_escape(names[i]);
    out += "</p>\n";
  };
  list("Kept as they were", report.kept);
  list("Reached by no sample, rounded to nearest", report.unreached);
  return out + "</body></html>\n";
}

}  // namespace triptych::compress
