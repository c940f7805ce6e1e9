// Boxes, quadrangles and points in the text of an answer, as the Qwen families write them. Text that does not
// have the form stays text: nothing here throws for what a model says.
//   Qwen-VL: tokenization_qwen.py of Qwen-VL-Chat (draw_bbox_on_latest_picture); Qwen2-VL: arXiv 2409.12191,
//   section 2.2.1; Qwen2.5-VL: arXiv 2502.13923, section 2.2.1; Qwen3-VL: arXiv 2511.21631.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "media/region.h"
#include "models/model.h"

namespace triptych {

/// The marks around a name, a box and a quadrangle.
struct RegionTags {
  std::string_view ref_open, ref_close;
  std::string_view box_open, box_close;
  std::string_view quad_open, quad_close;
};

/// "<ref>name</ref><box>(x1,y1),(x2,y2)</box>", "<quad>(x1,y1), ... (x4,y4)</quad>". Coordinates are integers
/// in thousandths of the picture's sides, 0 to 1000; pixels are int(x / 1000 * width), as the reference draws
/// them. Boxes that follow a name, with only blanks and commas between, all have it. The regions lie in the
/// last picture of `plans`; without a picture there are none.
std::vector<Region> find_tagged_regions(std::string_view answer, const RegionTags& tags,
                                        std::span<const MediaPlan> plans);

/// What the numbers of a region count: pixels of the picture as it was resized for the model, or thousandths
/// of its sides.
enum class RegionUnit { kResizedPixels, kThousandths };

/// JSON objects anywhere in the text: {"bbox_2d": [x1, y1, x2, y2], "label": "name"} and {"point_2d": [x,
/// y]}. They lie in the last picture.
std::vector<Region> find_json_regions(std::string_view answer, std::span<const MediaPlan> plans,
                                      RegionUnit unit = RegionUnit::kResizedPixels);

/// Index of the last picture (not video), or -1.
int last_picture(std::span<const MediaPlan> plans);

}  // namespace triptych
