// Lines over a common axis, as SVG: values over time, and distributions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triptych {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascends; not finite ones are left out
};

struct LineChart {
  std::string title;  // for readers of the text, and above the lines
  std::vector<ChartSeries> series;
  bool x_is_log = false;                      // x > 0 then; others are left out
  bool is_filled = false;                     // the area below each line, too
  double y_high = 0;                          // top of the chart; 0: the highest value
  std::string (*x_text)(double x) = nullptr;  // of a tick; null: the number
  std::string (*y_text)(double y) = nullptr;
};

/// An <svg> element with axes and grid, and a legend of its series below when there are several.
std::string line_chart_html(const LineChart& chart);

/// How the values of `values` are distributed: points (value, share of the values that are not above it), at
/// most `n_points`.
ChartSeries cumulative(std::string name, std::vector<double> values, std::size_t n_points = 200);

}  // namespace triptych
