#include "weights/quant_policy.h"

namespace triptych {

std::optional<QuantFormat> WeightFormats::operator()(const LinearInfo& linear) const {
  switch (linear.traits.role) {
    case LinearRole::kPixelInput:
      // 4 bits would cost accuracy where 8 cost nothing.
      return linear.traits.int8_inputs && vision && vision->code == QuantCode::kInt8 ? vision : std::nullopt;
    case LinearRole::kHead:
      return lm_head;
    case LinearRole::kBody:
      break;
  }
  return linear.model_part == "language" ? language : vision;
}

}  // namespace triptych
