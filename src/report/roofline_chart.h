// The roofline of a machine with the parts of a model on it, as SVG (Williams, Waterman, Patterson:
// "Roofline", CACM 52(4), 2009): arithmetic intensity against speed, both logarithmic.
#pragma once

#include <string>
#include <vector>

#include "report/part_timing.h"

namespace triptych {

/// A part that does products, and its number in the chart and its table.
struct RooflinePoint {
  int number = 0;
  const PartTiming* part = nullptr;
  double ops_per_byte = 0;
  double ops_per_s = 0;
};

/// The parts that count operations and bytes, numbered in order. Borrows `parts`.
std::vector<RooflinePoint> roofline_points(const std::vector<PartTiming>& parts);

/// An <svg> element: ceilings from the limits, one dot per point in the colour of its stage with its number
/// beside it.
std::string roofline_svg(const std::vector<RooflinePoint>& points, const MachineLimits& limits);

/// Colour of a stage ("#rrggbb"), the same in every chart.
const char* stage_color(std::string_view stage) noexcept;

}  // namespace triptych
