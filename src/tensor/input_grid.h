// Inputs of a linear as 8-bit integers on a fixed grid.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace triptych {

/// x = offset + step * q with an integer q in -128 .. 127: inputs that are so by nature, as pixels are, or
/// that are rounded to it because calibration found their range.
struct InputGrid {
  float step = 0;  // 0: no grid
  float offset = 0;

  bool operator==(const InputGrid&) const = default;
};

/// By linear: its published name and part, as triptych.json has them (StoredLinear).
using InputGrids = std::map<std::string, InputGrid, std::less<>>;

}  // namespace triptych
