// Places in pictures that an answer names: boxes, quadrangles and points.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "triptych/export.h"

namespace triptych::api {

enum class RegionKind { kBox, kQuad, kPoint };

/// "box", "quad", "point".
TRIPTYCH_API std::string_view to_string(RegionKind kind) noexcept;

struct PointPx {
  int x = 0, y = 0;
  friend bool operator==(const PointPx&, const PointPx&) = default;
};

/// A point in thousandths of the picture's width and height.
struct PointPerMille {
  double x = 0, y = 0;
  friend bool operator==(const PointPerMille&, const PointPerMille&) = default;
};

/// Corners in the order the text gives them: two of a box (as a rule top left, then bottom right), four of a
/// quadrangle, one point. What a text says is not checked further: a box may be empty or turned round.
struct Region {
  RegionKind kind = RegionKind::kBox;
  std::string label;                       // what the text calls it; may be empty
  int media_index = 0;                     // the picture, counted among all media of the conversation
  std::vector<PointPerMille> points_1000;  // each in [0, 1000]
  std::vector<PointPx> points_px;  // in the picture as it was decoded; x in [0, width], y in [0, height]
};

}  // namespace triptych::api
