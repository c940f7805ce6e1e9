// A pass: one step of the work on a stage, which is a group of linears that run one after another (a block of
// a tower or decoder). Passes run in the order of a recipe (compress/recipe.h); each says what it reads, what
// it may change and what it reports. A new one is a file beside this with a PassInfo, a line in pass.cc, a
// test and a row in docs/compression.md.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "compress/compress_report.h"
#include "compress/moments.h"
#include "compress/paired_moments.h"
#include "compress/weight_edits.h"

namespace triptych::compress {

/// A linear that is worked on.
struct PlannedLinear {
  LinearId id;
  std::string part;    // "vision", "projector", "language"
  QuantFormat format;  // that it gets
  std::vector<std::string> matrices;
  std::vector<std::int64_t> n_rows;  // of each
  std::vector<std::string> biases;   // empty, or one a matrix ("": none)
  std::int64_t n_in = 0;

  std::int64_t n_weights() const noexcept;
  std::string bias_of(std::size_t matrix) const { return biases.empty() ? std::string() : biases[matrix]; }
};

/// What passes work on. Moments are of the inputs as the model gives them with everything before the stage
/// quantized; a pass that changes the scale of inputs changes them too.
struct StageWork {
  std::span<const PlannedLinear> linears;
  std::span<const EqualizationGroup> groups;
  MomentRecorder& moments;
  const MomentRecorder& float_moments;  // channels of the original model's inputs
  /// Inputs of the original beside those of now, for linears that a pass asked for.
  std::map<LinearId, PairedMoments>& pairs;
  WeightEdits& weights;
  ThreadPool& pool;
  CompressReport& report;
  /// Channels were divided by these since the moments were taken.
  std::map<LinearId, std::vector<float>> input_scales = {};
  /// Linears whose weights answer for the errors of their inputs already.
  std::set<LinearId> fitted = {};

  /// Null: the matrix is none of this stage's.
  const PlannedLinear* linear_with(const std::string& matrix) const;
  /// Divides channels of a linear's inputs in all moments.
  void divide_inputs(const LinearId& id, std::span<const float> by);
};

class Pass {
 public:
  virtual ~Pass() = default;
  /// Throws Error for what it cannot work with; the run ends then.
  virtual void run(StageWork& stage) = 0;
  /// Whether StageWork::pairs shall hold this linear, which costs a run of the original beside the model.
  virtual bool wants_pairs(const PlannedLinear&) const { return false; }
};

/// A number in a recipe. Nothing: "auto".
using PassSettings = std::map<std::string, std::optional<double>, std::less<>>;

struct PassParameter {
  std::string_view name;
  std::optional<double> fallback;
  double min = 0, max = 1;
  bool may_be_auto = false;
};

struct PassInfo {
  std::string_view name, reads, changes, reports;
  std::vector<PassParameter> parameters;
  bool follows_rounding = false;  // it needs the codes, so that it stands behind `round`
  /// All parameters are set.
  std::unique_ptr<Pass> (*make)(const PassSettings&) = nullptr;
};

/// All there are.
const std::vector<PassInfo>& pass_infos();
/// Null: there is none of that name.
const PassInfo* find_pass(std::string_view name);

// Each in the file of its name.
PassInfo equalize_pass();
PassInfo fold_residual_pass();
PassInfo round_pass();
PassInfo bias_correction_pass();

}  // namespace triptych::compress
