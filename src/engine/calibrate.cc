#include "engine/calibrate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/engine.h"

namespace triptych {
namespace {

constexpr const char* kHowToCalibrate =
    "--vision-activations static: there are no ranges of activations: triptych convert MODEL OUT --calibrate "
    "FOLDER finds them";

constexpr int kPieces = 4096;

struct Ends {
  double low, high;
};

// What is lost by cutting off at each of kPieces places from one end on: the squared distances of what lies
// beyond, and how much that is.
struct CutOff {
  std::vector<double> error, n;
};

// `width` is that of a piece.
CutOff cut_off(const std::vector<std::uint64_t>& counts, bool from_above, double width) {
  CutOff out{std::vector<double>(kPieces), std::vector<double>(kPieces)};
  // Sums over what was passed: number, distance, its square, all from the current place.
  double n = 0, distance = 0, square = 0;
  for (std::size_t i = 0; i < kPieces; ++i) {
    out.error[i] = square;
    out.n[i] = n;
    square += 2 * width * distance + width * width * n;
    distance += width * n;
    const auto more = static_cast<double>(counts[from_above ? kPieces - 1 - i : i]);
    n += more;
    distance += more * width / 2;  // its middle
    square += more * width * width / 3;
  }
  return out;
}

// The ends that make the squared error least, as in PyTorch's HistogramObserver: a step's square / 12 for
// what lies between.
Ends best_ends(const std::vector<std::uint64_t>& counts, double low, double high) {
  constexpr std::size_t kStride = 8;
  const double width = (high - low) / kPieces;
  const CutOff below = cut_off(counts, false, width);
  const CutOff above = cut_off(counts, true, width);
  double total = 0;
  for (const std::uint64_t n : counts) total += static_cast<double>(n);
  Ends best{low, high};
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < kPieces; i += kStride)
    for (std::size_t j = 0; i + j + kStride < kPieces; j += kStride) {
      const double step = width * static_cast<double>(kPieces - i - j) / 255;
      const double error =
          below.error[i] + above.error[j] + (total - below.n[i] - above.n[j]) * step * step / 12;
      if (error >= least) continue;
      least = error;
      best = {low + static_cast<double>(i) * width, high - static_cast<double>(j) * width};
    }
  return best;
}

ActivationQuant quant_between(float low, float high) {
  // Inputs that never change still need a step.
  const float span = std::max(high - low, 1e-6F * std::max({std::abs(low), std::abs(high), 1e-20F}));
  const float step = span / 255;
  return {step, low + 128 * step};
}

}  // namespace

void InputRanges::note_ends(Spread& spread, bool is_new, const TensorView& x) {
  if (is_new) spread.low = spread.high = x.cf32()[0];
  bool finite = true;
  for (std::int64_t t = 0; t < x.dim(0); ++t) {
    const float* row = x.cf32() + t * x.row_stride();
    for (std::int64_t k = 0; k < x.dim(1); ++k) {
      spread.low = std::min(spread.low, row[k]);
      spread.high = std::max(spread.high, row[k]);
      finite = finite && std::isfinite(row[k]);
    }
  }
  if (!finite)
    fail(ErrorCode::kInvalidArgument, "calibration: an input of a linear is infinite or no number");
}

void InputRanges::count(Spread& spread, const TensorView& x) {
  const float span = spread.high - spread.low;
  if (!(span > 0)) return;
  spread.counts.resize(kPieces);
  const float pieces_per_unit = kPieces / span;
  for (std::int64_t t = 0; t < x.dim(0); ++t) {
    const float* row = x.cf32() + t * x.row_stride();
    for (std::int64_t k = 0; k < x.dim(1); ++k) {
      const float at = (row[k] - spread.low) * pieces_per_unit;
      if (std::isfinite(at)) ++spread.counts[static_cast<std::size_t>(std::clamp(at, 0.0F, kPieces - 1.0F))];
    }
  }
}

void InputRanges::on_linear(const LinearWeight& weight, const TensorView& x) {
  if (x.dim(0) == 0) return;
  const auto [it, is_new] = spreads_.try_emplace(&weight);
  counting_ ? count(it->second, x) : note_ends(it->second, is_new, x);
}

void InputRanges::begin_histograms() { counting_ = true; }

ActivationQuantMap InputRanges::activation_quants(const PartSizes& sizes) const {
  ActivationQuantMap out;
  for (const PartSizes::Linear& linear : sizes.linears) {
    const auto found = spreads_.find(linear.weight);
    // Linears of pixels are not quantized, or their inputs are 8-bit integers already.
    const bool takes_pixels = linear.traits.role == LinearRole::kPixelInput;
    if (found == spreads_.end() || linear.part == "language" || takes_pixels) continue;
    const Spread& spread = found->second;
    Ends ends{static_cast<double>(spread.low), static_cast<double>(spread.high)};
    if (!spread.counts.empty()) ends = best_ends(spread.counts, ends.low, ends.high);
    out[linear.id] = quant_between(static_cast<float>(ends.low), static_cast<float>(ends.high));
  }
  return out;
}

bool take_activation_quants(PackedIndex& index, const LoadOptions& options) {
  bool any = false;
  for (StoredLinear& linear : index.linears) {
    any = any || linear.activation_quant.step > 0;
    if (options.static_vision_inputs == false) linear.activation_quant = {};
  }
  if (options.static_vision_inputs == true && !any) fail(ErrorCode::kInvalidArgument, "{}", kHowToCalibrate);
  return any && options.static_vision_inputs != false;
}

bool has_activation_quants(const LoadOptions& options) {
  if (options.static_vision_inputs == true && options.activation_quants.empty())
    fail(ErrorCode::kInvalidArgument, "{}", kHowToCalibrate);
  if (options.activation_quants.empty()) return false;
  check_takes_activation_quants(options.weight_formats);
  return true;
}

void check_takes_activation_quants(const WeightFormats& formats) {
  const auto& vision = formats.vision;
  if (!vision || vision->code != QuantCode::kInt8 || vision->group_size != QuantFormat::kWholeRow)
    fail(ErrorCode::kInvalidArgument, "static activations need --vision-weights int8, not {}",
         vision ? vision->to_string() : "auto");
}

ActivationQuantMap calibrate_inputs(
    LoadedModel& model, const std::vector<MediaInput>& pictures,
    const std::function<void(std::int64_t n_done, std::int64_t n_runs)>& progress) {
  if (pictures.empty()) fail(ErrorCode::kInvalidArgument, "calibration: there is no picture");
  EngineOptions engine_options;
  engine_options.max_context_tokens = 1;
  Engine engine(model, engine_options);
  InputRanges ranges;
  std::int64_t n_done = 0;
  const auto look_at = [&](const MediaInput& picture) {
    if (progress) progress(n_done++, 2 * static_cast<std::int64_t>(pictures.size()));
    ChatRequest request;
    ChatMessage message;
    message.role = "user";
    message.parts.push_back({.kind = ContentPart::Kind::kImage, .text = {}});
    message.parts.push_back({.kind = ContentPart::Kind::kText, .text = "Describe the picture."});
    request.messages.push_back(std::move(message));
    request.media.push_back(picture);
    const PreparedRequest prepared = model.prepare(request);
    engine.encode_media(prepared.media, &ranges);
  };
  for (const MediaInput& picture : pictures) look_at(picture);
  ranges.begin_histograms();
  for (const MediaInput& picture : pictures) look_at(picture);
  ActivationQuantMap out = ranges.activation_quants(model.model().part_sizes());
  if (out.empty())
    fail(ErrorCode::kInvalidArgument, "calibration: {} has no tower, its pictures go to the language model",
         model.info().architecture);
  return out;
}

}  // namespace triptych
