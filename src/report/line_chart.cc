#include "report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/html_text.h"

namespace triptych {
namespace {

constexpr double kWidth = 900, kHeight = 220, kLeft = 64, kRight = 12, kTop = 10, kBottom = 26;
// Readable on white and on black.
constexpr const char* kColors[] = {"#1c7ed6", "#e8590c", "#2f9e44", "#ae3ec9",
                                   "#e03131", "#0c8599", "#f08c00", "#748ffc"};

const char* color(std::size_t series) { return kColors[series % std::size(kColors)]; }

struct Axis {
  double low = 0, high = 1;
  double from = 0, to = 1;  // on the paper
  bool is_log = false;

  double at(double value) const {
    const double share = is_log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + std::clamp(share, 0.0, 1.0) * (to - from);
  }
};

// 1, 2 or 5 times a power of ten, so that about `n` of them make up `range`.
double tick_step(double range, int n) {
  const double power = std::pow(10.0, std::floor(std::log10(range / n)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (range / (factor * power) <= n) return factor * power;
  return 10 * power;
}

std::vector<double> ticks_of(const Axis& axis, int n) {
  std::vector<double> out;
  if (!axis.is_log) {
    const double step = tick_step(axis.high - axis.low, n);
    for (double tick = std::ceil(axis.low / step) * step; tick <= axis.high + step / 1e6; tick += step)
      out.push_back(std::fabs(tick) < step / 1e6 ? 0 : tick);
    return out;
  }
  const bool is_long = axis.high / axis.low > 1e3;
  for (double power = std::pow(10.0, std::floor(std::log10(axis.low))); power <= axis.high; power *= 10)
    for (const double factor : {1.0, 2.0, 5.0})
      if ((factor == 1.0 || !is_long) && factor * power >= axis.low * 0.999 &&
          factor * power <= axis.high * 1.001)
        out.push_back(factor * power);
  return out;
}

bool is_shown(const LineChart& chart, const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second) && (!chart.x_is_log || point.first > 0);
}

std::pair<Axis, Axis> axes_of(const LineChart& chart) {
  Axis x{.low = HUGE_VAL, .high = -HUGE_VAL, .from = kLeft, .to = kWidth - kRight, .is_log = chart.x_is_log};
  Axis y{.low = 0, .high = 0, .from = kHeight - kBottom, .to = kTop};
  for (const ChartSeries& series : chart.series)
    for (const auto& point : series.points) {
      if (!is_shown(chart, point)) continue;
      x.low = std::min(x.low, point.first);
      x.high = std::max(x.high, point.first);
      y.high = std::max(y.high, point.second);
    }
  if (!(x.low <= x.high)) x.low = x.high = 1;
  if (chart.y_high > 0) y.high = chart.y_high;
  if (y.high <= 0) y.high = 1;
  if (x.high - x.low < 1e-9 * std::fabs(x.high) + 1e-12) {  // one value: in the middle
    x.high = chart.x_is_log ? x.high * 2 : x.high + 1;
    x.low = chart.x_is_log ? x.low / 2 : x.low - 1;
  }
  return {x, y};
}

std::string text_of(std::string (*text)(double), double value) {
  return html_escape(text != nullptr ? text(value) : fmt::format("{:g}", value));
}

std::string grid(const LineChart& chart, const Axis& x, const Axis& y) {
  std::string out;
  for (const double tick : ticks_of(y, 5))
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>"
        "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, y.at(tick), kWidth - kRight, kLeft - 6, y.at(tick) + 4, text_of(chart.y_text, tick));
  for (const double tick : ticks_of(x, 8)) {
    const double at = x.at(tick);
    const char* anchor = at > kWidth - kRight - 20 ? "end" : "middle";
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"{4}\">{5}</text>\n",
        at, kTop, kHeight - kBottom, kHeight - 8, anchor, text_of(chart.x_text, tick));
  }
  return out;
}

std::string line(const LineChart& chart, std::size_t index, const Axis& x, const Axis& y) {
  const ChartSeries& series = chart.series[index];
  std::string points;
  double first_x = 0, last_x = 0;
  for (const auto& point : series.points) {
    if (!is_shown(chart, point)) continue;
    last_x = x.at(point.first);
    if (points.empty()) first_x = last_x;
    points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", last_x, y.at(point.second));
  }
  if (points.empty()) return "";
  std::string out = fmt::format("<g><title>{}</title>", html_escape(series.name));
  if (chart.is_filled)
    out +=
        fmt::format("<polygon points=\"{:.1f},{:.1f} {} {:.1f},{:.1f}\" fill=\"{}\" fill-opacity=\"0.2\"/>",
                    first_x, y.from, points, last_x, y.from, color(index));
  return out + fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/></g>\n",
                           points, color(index));
}

}  // namespace

std::string line_chart_html(const LineChart& chart) {
  const auto [x, y] = axes_of(chart);
  std::string out = fmt::format(
      "<h3>{0}</h3>\n<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" "
      "viewBox=\"0 0 {1:.0f} {2:.0f}\" width=\"{1:.0f}\" height=\"{2:.0f}\" role=\"img\" "
      "aria-label=\"{0}\">\n",
      html_escape(chart.title), kWidth, kHeight);
  out += grid(chart, x, y);
  for (std::size_t i = 0; i < chart.series.size(); ++i) out += line(chart, i, x, y);
  out += "</svg>\n";
  if (chart.series.size() < 2) return out;
  out += "<p class=\"legend\">";
  for (std::size_t i = 0; i < chart.series.size(); ++i)
    out += fmt::format("<span><i style=\"background:{}\"></i>{}</span>\n", color(i),
                       html_escape(chart.series[i].name));
  return out + "</p>\n";
}

ChartSeries cumulative(std::string name, std::vector<double> values, std::size_t n_points) {
  ChartSeries out{std::move(name), {}};
  std::sort(values.begin(), values.end());
  n_points = std::min(std::max<std::size_t>(n_points, 2), values.size());
  for (std::size_t i = 0; i < n_points; ++i) {
    const std::size_t at = n_points < 2 ? 0 : i * (values.size() - 1) / (n_points - 1);
    out.points.emplace_back(values[at], static_cast<double>(at + 1) / static_cast<double>(values.size()));
  }
  return out;
}

}  // namespace triptych
