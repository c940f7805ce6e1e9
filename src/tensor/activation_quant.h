// Static activation quantization parameters: inputs of a linear as 8-bit integers.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace triptych {

/// x = offset + step * q with an integer q in -128 .. 127: inputs that are so by nature, as pixels are, or
/// that are rounded to it because calibration found their range.
struct ActivationQuant {
  float step = 0;  // 0: none
  float offset = 0;

  bool operator==(const ActivationQuant&) const = default;
};

/// By linear: its published name and part, as triptych.json has them (StoredLinear).
using ActivationQuantMap = std::map<std::string, ActivationQuant, std::less<>>;

}  // namespace triptych
