// What matrices are quantized to while loading: a choice apart from where they come from.
#pragma once

#include <functional>
#include <optional>

#include "tensor/quant_format.h"
#include "weights/linear_info.h"

namespace triptych {

/// The format of one linear; nothing: as stored. An empty policy leaves all as they are.
using QuantPolicy = std::function<std::optional<QuantFormat>(const LinearInfo&)>;

/// One format for each part of a model. Linears that take pixels keep their type, since their share of the
/// work is below a hundredth; where pixels are 8-bit integers anyway they become int8 with the tower.
struct WeightFormats {
  std::optional<QuantFormat> language;
  std::optional<QuantFormat> vision;   // towers, projectors, resamplers
  std::optional<QuantFormat> lm_head;  // the output layer, also when it is the token embedding

  bool any() const noexcept { return language || vision || lm_head; }
  /// A QuantPolicy.
  std::optional<QuantFormat> operator()(const LinearInfo& linear) const;
  bool operator==(const WeightFormats&) const = default;
};

}  // namespace triptych
