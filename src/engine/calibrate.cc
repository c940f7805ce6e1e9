#include "engine/calibrate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/engine.h"

namespace triptych {
namespace {

InputGrid grid_between(float low, float high) {
  // Inputs that never change still need a step.
  const float span = std::max(high - low, 1e-6F * std::max({std::abs(low), std::abs(high), 1e-20F}));
  const float step = span / 255;
  return {step, low + 128 * step};
}

}  // namespace

void InputRanges::on_linear(const LinearWeight& weight, const TensorView& x) {
  if (x.dim(0) == 0) return;
  const auto [it, is_new] = ranges_.try_emplace(&weight, Range{x.cf32()[0], x.cf32()[0]});
  Range& range = it->second;
  bool finite = true;
  for (std::int64_t t = 0; t < x.dim(0); ++t) {
    const float* row = x.cf32() + t * x.row_stride();
    for (std::int64_t k = 0; k < x.dim(1); ++k) {
      range.low = std::min(range.low, row[k]);
      range.high = std::max(range.high, row[k]);
      finite = finite && std::isfinite(row[k]);
    }
  }
  if (!finite)
    fail(ErrorCode::kInvalidArgument, "calibration: an input of a linear is infinite or no number");
}

InputGrids InputRanges::grids(const PartSizes& sizes) const {
  InputGrids out;
  for (const PartSizes::Linear& linear : sizes.linears) {
    const auto found = ranges_.find(linear.weight);
    if (found == ranges_.end() || linear.part == "language") continue;
    out[linear.stored_name] = grid_between(found->second.low, found->second.high);
  }
  return out;
}

InputGrids calibrate_inputs(LoadedModel& model, const std::vector<MediaInput>& pictures) {
  if (pictures.empty()) fail(ErrorCode::kInvalidArgument, "calibration: there is no picture");
  EngineOptions engine_options;
  engine_options.max_context_tokens = 1;
  Engine engine(model, engine_options);
  InputRanges ranges;
  for (const MediaInput& picture : pictures) {
    ChatRequest request;
    ChatMessage message;
    message.role = "user";
    message.parts.push_back({.kind = ContentPart::Kind::kImage, .text = {}});
    message.parts.push_back({.kind = ContentPart::Kind::kText, .text = "Describe the picture."});
    request.messages.push_back(std::move(message));
    request.media.push_back(picture);
    const PreparedRequest prepared = model.prepare(request);
    engine.encode_media(prepared.media, &ranges);
  }
  InputGrids out = ranges.grids(model.model().part_sizes());
  if (out.empty())
    fail(ErrorCode::kInvalidArgument, "calibration: {} has no tower, its pictures go to the language model",
         model.info().architecture);
  return out;
}

}  // namespace triptych
