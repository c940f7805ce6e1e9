// Static activation quantization parameters: inputs of a linear as 8-bit integers.
#pragma once

namespace triptych {

/// x = offset + step * q with an integer q in -128 .. 127: inputs that are so by nature, as pixels are, or
/// that are rounded to it because calibration found their range.
struct ActivationQuant {
  float step = 0;  // 0: none
  float offset = 0;

  bool operator==(const ActivationQuant&) const = default;
};

}  // namespace triptych
