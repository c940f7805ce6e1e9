#include "report/roofline_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "report/html_text.h"
#include "report/text_table.h"

namespace triptych {
namespace {

constexpr double kWidth = 900, kHeight = 520;
constexpr double kLeft = 76, kRight = 24, kTop = 20, kBottom = 52;

// A logarithmic axis between two powers of `base`.
struct LogAxis {
  double low, high;  // values at the ends
  double from, to;   // their places, pixels
  double at(double value) const {
    const double share = std::log(std::clamp(value, low, high) / low) / std::log(high / low);
    return from + share * (to - from);
  }
};

// The power of `base` at or below, at or above a value; a value that is one up to rounding counts as one.
double power_below(double value, double base) {
  return std::pow(base, std::floor(std::log(value) / std::log(base) + 1e-9));
}
double power_above(double value, double base) {
  return std::pow(base, std::ceil(std::log(value) / std::log(base) - 1e-9));
}

struct Ceiling {
  const char* title;
  double ops_per_s;
};

std::vector<Ceiling> ceilings_of(const MachineLimits& limits) {
  std::vector<Ceiling> out;
  if (limits.int8_ops_per_s > 0) out.push_back({"int8", limits.int8_ops_per_s});
  if (limits.bf16_flops_per_s > 0) out.push_back({"bf16", limits.bf16_flops_per_s});
  if (limits.fp32_flops_per_s > 0) out.push_back({"fp32", limits.fp32_flops_per_s});
  return out;
}

struct Axes {
  LogAxis x, y;
};

Axes axes_for(const std::vector<RooflinePoint>& points, const MachineLimits& limits) {
  double x_low = 0.5, x_high = 512, y_low = 1e11, y_high = 1e11;
  if (limits.read_bytes_per_s > 0) y_low = std::min(y_low, x_low * limits.read_bytes_per_s);
  for (const Ceiling& ceiling : ceilings_of(limits)) {
    y_high = std::max(y_high, 1.2 * ceiling.ops_per_s);
    if (limits.read_bytes_per_s > 0)
      x_high = std::max(x_high, 4 * ceiling.ops_per_s / limits.read_bytes_per_s);
  }
  for (const RooflinePoint& point : points) {
    x_low = std::min(x_low, point.ops_per_byte / 1.3);
    x_high = std::max(x_high, point.ops_per_byte * 1.3);
    y_low = std::min(y_low, point.ops_per_s / 1.3);
    y_high = std::max(y_high, point.ops_per_s * 1.3);
  }
  return {{power_below(x_low, 2), power_above(x_high, 2), kLeft, kWidth - kRight},
          {power_below(y_low, 10), power_above(y_high, 10), kHeight - kBottom, kTop}};
}

std::string grid(const Axes& axes) {
  std::string out;
  for (double x = axes.x.low; x <= axes.x.high * 1.0001; x *= 4)
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4:g}</text>\n",
        axes.x.at(x), kTop, kHeight - kBottom, kHeight - kBottom + 18, x);
  for (double y = axes.y.low; y <= axes.y.high * 1.0001; y *= 10)
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>"
        "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}OP/s</text>\n",
        kLeft, axes.y.at(y), kWidth - kRight, kLeft - 6, axes.y.at(y) + 4, format_count(y));
  out += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">operations per byte of operands</text>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 10);
  return out;
}

std::string roofs(const Axes& axes, const MachineLimits& limits) {
  std::string out;
  double top = 0;
  for (const Ceiling& ceiling : ceilings_of(limits)) {
    top = std::max(top, ceiling.ops_per_s);
    const double ridge =
        limits.read_bytes_per_s > 0 ? ceiling.ops_per_s / limits.read_bytes_per_s : axes.x.low;
    out += fmt::format(
        "<line class=\"roof\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"roof-text\" x=\"{:.1f}\" y=\"{:.1f}\" >{} {}OP/s</text>\n",
        axes.x.at(ridge), axes.y.at(ceiling.ops_per_s), kWidth - kRight, axes.y.at(ceiling.ops_per_s),
        axes.x.at(ridge) + 10, axes.y.at(ceiling.ops_per_s) - 5, ceiling.title,
        format_count(ceiling.ops_per_s));
  }
  if (limits.read_bytes_per_s <= 0 || top <= 0) return out;
  // The slope, cut to the chart.
  const double x_begin = std::max(axes.x.low, axes.y.low / limits.read_bytes_per_s);
  const double x_end = top / limits.read_bytes_per_s;
  if (x_begin >= x_end) return out;
  const double angle = -std::atan2(axes.y.at(x_begin * limits.read_bytes_per_s) - axes.y.at(top),
                                   axes.x.at(x_end) - axes.x.at(x_begin)) *
                       180.0 / 3.14159265358979;
  const double x_text = std::sqrt(x_begin * x_end);
  out += fmt::format(
      "<line class=\"roof\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>"
      "<text class=\"roof-text\" text-anchor=\"middle\" transform=\"translate({:.1f} {:.1f}) "
      "rotate({:.1f})\">"
      "read {}B/s</text>\n",
      axes.x.at(x_begin), axes.y.at(x_begin * limits.read_bytes_per_s), axes.x.at(x_end), axes.y.at(top),
      axes.x.at(x_text) - 6, axes.y.at(x_text * limits.read_bytes_per_s) - 6, angle,
      format_count(limits.read_bytes_per_s));
  return out;
}

struct Place {
  double x, y;
};

// Where the numbers go: beside their dots, away from other dots and numbers as far as there is room.
std::vector<Place> number_places(const std::vector<Place>& dots) {
  constexpr double kApart = 17;
  std::vector<Place> out;
  const auto is_free = [&](const Place& place) {
    const auto near = [&](const Place& other, double apart) {
      return std::hypot(place.x - other.x, place.y - other.y) < apart;
    };
    return place.x > kLeft && place.x < kWidth - 8 && place.y > 8 && place.y < kHeight - kBottom &&
           std::none_of(dots.begin(), dots.end(), [&](const Place& dot) { return near(dot, 12); }) &&
           std::none_of(out.begin(), out.end(), [&](const Place& number) { return near(number, kApart); });
  };
  for (const Place& dot : dots) {
    Place best{dot.x + 14, dot.y - 14};
    bool found = false;
    for (double radius = 15; radius < 120 && !found; radius += 9)
      for (int step = 0; step < 16 && !found; ++step) {
        const double angle = 3.14159265358979 * (step / 8.0 - 0.25);
        const Place place{dot.x + radius * std::cos(angle), dot.y + radius * std::sin(angle)};
        if (!is_free(place)) continue;
        best = place;
        found = true;
      }
    out.push_back(best);
  }
  return out;
}

}  // namespace

const char* stage_color(std::string_view stage) noexcept {
  if (stage == "tower") return "#0b7285";
  if (stage == "projector") return "#7048b6";
  if (stage == "prefill") return "#c2410c";
  return "#2b8a3e";
}

std::vector<RooflinePoint> roofline_points(const std::vector<PartTiming>& parts) {
  std::vector<RooflinePoint> out;
  for (const PartTiming& part : parts) {
    const double ops = part.cost.flops + part.cost.int8_ops;
    if (ops <= 0 || part.cost.bytes <= 0 || part.ms <= 0) continue;
    out.push_back({static_cast<int>(out.size()) + 1, &part, ops / part.cost.bytes, ops * 1000.0 / part.ms});
  }
  return out;
}

std::string roofline_svg(const std::vector<RooflinePoint>& points, const MachineLimits& limits) {
  const Axes axes = axes_for(points, limits);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"roofline\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" aria-label=\"roofline\">\n",
      kWidth, kHeight);
  out += grid(axes) + roofs(axes, limits);
  std::vector<Place> dots;
  for (const RooflinePoint& point : points)
    dots.push_back({axes.x.at(point.ops_per_byte), axes.y.at(point.ops_per_s)});
  const std::vector<Place> numbers = number_places(dots);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const RooflinePoint& point = points[i];
    out += fmt::format(
        "<g class=\"point\"><title>{}. {} {}: {:.1f} operations per byte, {}OP/s</title>"
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>",
        point.number, html_escape(point.part->stage), html_escape(point.part->name), point.ops_per_byte,
        format_count(point.ops_per_s), dots[i].x, dots[i].y, numbers[i].x, numbers[i].y,
        stage_color(point.part->stage));
    out += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>"
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"7.5\" fill=\"{}\"/>"
        "<text class=\"number\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text></g>\n",
        dots[i].x, dots[i].y, stage_color(point.part->stage), numbers[i].x, numbers[i].y,
        stage_color(point.part->stage), numbers[i].x, numbers[i].y + 3.5, point.number);
  }
  return out + "</svg>\n";
}

}  // namespace triptych
